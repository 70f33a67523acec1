// Package webhook runs jobs by posting them to one URL: any language behind HTTP can be a worker.
package webhook
