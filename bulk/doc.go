// Package bulk runs bulk jobs: it takes them from the store's fair queue, hands them to handlers, acknowledges what became
// of them, and brings groups to their end. A team's own worker registers Go handlers with an Engine; cmd/bulkworker is the
// one that ships, with the handlers of bulk/handler.
package bulk
