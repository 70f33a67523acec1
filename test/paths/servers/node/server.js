// Servers that answer with the name of the handler that they ran: Express, and Node's own with each way to read a URL.
// It prints a line for each, "name port", and then "ready".
'use strict';
const http = require('node:http');
const path = require('node:path');
const url = require('node:url');
const express = require('express');

const names = ['sale', 'static', 'vip'];
const below = (pathname) => names.find((name) => pathname === '/' + name || pathname.startsWith('/' + name + '/')) || 'other';

const app = express();
for (const name of names) app.use('/' + name, (req, res) => res.send(name));
app.use((req, res) => res.send('other'));

const routes = express();
for (const name of names) routes.get(['/' + name, '/' + name + '/*rest'], (req, res) => res.send(name));
routes.use((req, res) => res.send('other'));

const reading = (read) => (req, res) => {
  try {
    res.end(below(read(req.url)));
  } catch {
    res.statusCode = 400;
    res.end('refused');
  }
};

const servers = {
  'Express, mounted': app,
  'Express, routes': routes,
  'Node, new URL': reading((u) => new URL(u, 'http://shop.test').pathname),
  'Node, new URL decoded': reading((u) => path.posix.normalize(decodeURIComponent(new URL(u, 'http://shop.test').pathname))),
  'Node, url.parse': reading((u) => url.parse(u).pathname),
  'Node, split': reading((u) => decodeURI(u.split('?')[0])),
};

const listening = Object.entries(servers).map(([name, handler]) => new Promise((resolve) => {
  const server = http.createServer(handler).listen(0, '127.0.0.1', () => {
    console.log(name + '\t' + server.address().port);
    resolve();
  });
}));
Promise.all(listening).then(() => console.log('ready'));
process.stdin.on('end', () => process.exit(0)).resume(); // ends with who started it
