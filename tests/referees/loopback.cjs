// Preloaded into a server that would listen on every interface: it makes the server listen on 127.0.0.1.
const { Server } = require("node:net");

const listen = Server.prototype.listen;
Server.prototype.listen = function (where, ...rest) {
  const port = typeof where === "object" ? where.port : where;
  return listen.call(this, { port, host: "127.0.0.1" }, rest.at(-1));
};
