// Package published has documents that are the same for every client: shared caches may keep them, and clients ask with
// If-None-Match whether they have changed. A Document is one version of such a document. Revoked makes the list of the revoked sessions
// of a room, once for each change and not for each request.
package published
