import { defineConfig } from "vitest/config";

const server = process.env["MILLRACE_SERVER"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/millrace/serve/static",
    emptyOutDir: true,
    target: "es2022",
    chunkSizeWarningLimit: 4000,
  },
  // `npm run dev` shows the page as it is edited, with the data of a `millrace serve` that runs beside it.
  server: { proxy: { "/api": { target: server, ws: true } } },
  test: { include: ["test/**/*.test.ts"] },
});
