// Package http1 is the grammar of HTTP/1.1, read strictly: whatever it accepts means the same to every parser that follows
// RFC 9112, which the fuzz targets hold it to by comparison with net/http and fasthttp. It has no sockets.
//
// Reading order: field.go (names, values, and which fields mean something to a proxy), target.go (the request line, the
// target, Host), request_header.go and response_header.go (one pass over a header, and the framing that follows from it),
// refusal.go (why a request is refused), chunked.go and chunk_write.go (the chunked coding), trailer.go, buffer.go (bytes
// that were received and not consumed).
package http1
