// Unpacks the browser of the package @sparticuz/chromium with its libraries into the directory of the first argument.
const { brotliDecompressSync } = require("zlib");
const { readFileSync, writeFileSync } = require("fs");
const [, , to] = process.argv;
const packed = `${to}/node_modules/@sparticuz/chromium/bin`;
writeFileSync(`${to}/chromium`, brotliDecompressSync(readFileSync(`${packed}/chromium.br`)), { mode: 0o755 });
writeFileSync(`${to}/libraries.tar`, brotliDecompressSync(readFileSync(`${packed}/al2023.tar.br`)));
