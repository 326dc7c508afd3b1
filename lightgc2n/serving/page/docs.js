// Swagger UI in place of the plain page of the HTTP API, where it was installed (scripts/fetch-web).

const { SwaggerUIBundle } = globalThis;
if (SwaggerUIBundle) {
  SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#swagger",
    deepLinking: true,
    validatorUrl: null,
    defaultModelsExpandDepth: 0,
    onComplete: () => {
      document.getElementById("swagger").hidden = false;
      document.getElementById("plain").hidden = true;
    },
  });
}
