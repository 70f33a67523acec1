package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/console"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/token"
)

// checkParts returns the problems that other packages find in the configuration, so that check-config and the start report all
// of them at once.
func checkParts(cfg *config.Config) []config.Problem {
	return slices.Concat(checkKeys(cfg), checkPages(cfg), checkEstimates(cfg), checkWebhooks(cfg))
}

// checkStart builds all parts that serve builds from a configuration, and starts nothing, so that check-config and a reload refuse
// every configuration that serve refuses.
func checkStart(cfg *config.Config) error {
	client := redis.NewClient(&redis.Options{}) // connects with the first command, which is never sent
	defer func() { _ = client.Close() }()
	log := slog.New(slog.DiscardHandler)
	core, err := admission.New(coreOptions(cfg, client, nil, log))
	if err != nil {
		return err
	}
	own := &store{keyID: "check", keyText: make([]byte, 32)} // in place of the embedded store's key
	if _, err := rand.Read(own.keyText); err != nil {
		return err
	}
	options, err := gatewayOptions(cfg, own, core, nil, io.Discard, log)
	if err != nil {
		return err
	}
	g, err := gateway.New(options, nil)
	if err != nil {
		return err
	}
	defer func() { _ = g.Shutdown(context.Background()) }()
	registry := prometheus.NewRegistry()
	hooks, err := newWebhooks(cfg, g, core, registry, log)
	if err != nil {
		return err
	}
	_, err = newOperators(cfg, g, g.Ready, core, hooks, console.Insight{}, registry, log)
	return err
}

// asProblems returns each line of an error as a problem of the setting that it begins with.
func asProblems(err error) *config.Problems {
	problems := &config.Problems{}
	for line := range strings.Lines(err.Error()) {
		path, message, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "gateway: ")), ": ")
		if !ok {
			path, message = "", path
		}
		problems.List = append(problems.List, config.Problem{Path: path, Message: message})
	}
	return problems
}

// checkKeys checks each key alone. Validate checks that one is active, and that the files can be read.
func checkKeys(cfg *config.Config) []config.Problem {
	var problems []config.Problem
	keys, err := tokenKeys(cfg)
	if err != nil {
		return nil // Validate names every key that cannot be read
	}
	for i, key := range keys {
		key.Active = true
		if _, err := token.NewRing("check", []token.Key{key}); err != nil {
			message := strings.TrimPrefix(err.Error(), fmt.Sprintf("token: key %q: ", key.ID))
			problems = append(problems, config.Problem{Path: fmt.Sprintf("tokens.keys[%d]", i), Message: message})
		}
	}
	return problems
}

// tokenKeys returns the configured keys in the form of token.NewRing.
func tokenKeys(cfg *config.Config) ([]token.Key, error) {
	signing, err := cfg.SigningKeys()
	if err != nil {
		return nil, err
	}
	keys := make([]token.Key, len(signing))
	for i, k := range signing {
		keys[i] = token.Key{ID: k.ID, Alg: k.Alg, Secret: k.Secret, Private: k.Key, Active: k.Active}
	}
	return keys, nil
}

func checkPages(cfg *config.Config) []config.Problem {
	var problems []config.Problem
	for i := range cfg.Rooms {
		if _, err := page.New(pageOptions(&cfg.Rooms[i])); err != nil {
			// The error begins with the setting, as page.languages.
			setting, message := "page", err.Error()
			if n := strings.IndexAny(message, ": "); n > 0 && strings.HasPrefix(message, "page.") {
				setting, message = message[:n], strings.TrimLeft(message[n:], ": ")
			}
			problems = append(problems, config.Problem{Path: fmt.Sprintf("rooms[%d].%s", i, setting), Message: message})
		}
	}
	return problems
}

// pageOptions returns a room's settings for its page.
func pageOptions(room *config.Room) page.Options {
	return page.Options{
		Room:           room.ID,
		Title:          room.Page.Title,
		Languages:      room.Page.Languages,
		TemplateFile:   room.Page.TemplateFile,
		FrameAncestors: room.Page.FrameAncestors,
		Absence:        room.Queue.Absence,
	}
}
