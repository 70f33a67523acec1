// Package published has documents that are the same for every client, so that shared caches may store them and clients can revalidate
// them with If-None-Match. A Document is one version. Revoked makes the list of the revoked sessions of a room, once for each change and
// not for each request.
package published
