// Package answer writes the responses of the gateway itself: the status object, the page, problems and small documents.
//
// Reading order: table.go lists every problem; problem.go adds to a row of the table what one request needs; status.go is
// the status object; writer.go writes each of them in the form that suits the client; json.go has their strings and times.
package answer
