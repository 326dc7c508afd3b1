import { element, show } from "./dom.js";
export function drawBrowser(place) { show(place, element("h1", {}, "In this browser")); }
