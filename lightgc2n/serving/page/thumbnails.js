// Small images of items. The bundle says only where they are: this browser requests them from those hosts.

import { element } from "./dom.js";

const SCHEMES = ["http:", "https:"];

/**
 * Gives the image of an item of this list, decorative beside its name. An item without one gets an empty place of the
 * same size if any other of the list has one, so that names align; an image that fails to load leaves that place.
 */
export function thumbnails(items) {
  if (!items.some(addressOf)) return () => null;
  return (item) => {
    const src = addressOf(item);
    if (!src) return element("span", { class: "thumbnail" });
    return element("img", {
      class: "thumbnail",
      alt: "",
      loading: "lazy",
      decoding: "async",
      referrerpolicy: "no-referrer",
      onerror: (event) => event.target.replaceWith(element("span", { class: "thumbnail" })),
      src, // last: the attributes above decide how it is requested
    });
  };
}

/** The address of an image, or null if there is none or it is of another kind, such as a script. */
function addressOf({ image }) {
  const address = image && URL.canParse(image, location.origin) ? new URL(image, location.origin) : null;
  return address && SCHEMES.includes(address.protocol) ? address.href : null;
}
