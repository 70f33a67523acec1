// Package webhook runs jobs by posting them to one URL, so that a worker can be written in any language.
package webhook
