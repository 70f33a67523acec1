package main

import (
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/bulk/store"
)

// No type that most packages import leads to redis.Client: each of the packages would compile its 1,500 promoted methods (see lua.Client).
func TestStores_DoNotLeadToRedisClient(t *testing.T) {
	bad := reflect.TypeFor[redis.Client]()
	if !leadsTo(reflect.TypeFor[redis.UniversalClient](), bad, map[reflect.Type]bool{}) {
		t.Fatal("a client of redis.UniversalClient does not lead to redis.Client either")
	}
	for _, from := range []reflect.Type{reflect.TypeFor[*admission.Core](), reflect.TypeFor[*admission.Room](), reflect.TypeFor[*store.Fleet](), reflect.TypeFor[*store.Store]()} {
		if leadsTo(from, bad, map[reflect.Type]bool{}) {
			t.Errorf("%s leads to %s: use lua.Client in place of redis.UniversalClient", from, bad)
		}
	}
}

// leadsTo reports whether a type mentions another in its fields, elements, methods or functions, or in those of the types there.
func leadsTo(from, to reflect.Type, seen map[reflect.Type]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	var next []reflect.Type
	switch from.Kind() {
	case reflect.Array, reflect.Chan, reflect.Pointer, reflect.Slice:
		next = append(next, from.Elem())
	case reflect.Map:
		next = append(next, from.Key(), from.Elem())
	case reflect.Struct:
		for field := range from.Fields() {
			next = append(next, field.Type)
		}
	case reflect.Func:
		for in := range from.Ins() {
			next = append(next, in)
		}
		for out := range from.Outs() {
			next = append(next, out)
		}
	}
	for method := range from.Methods() {
		next = append(next, method.Type)
	}
	for _, t := range next {
		if leadsTo(t, to, seen) {
			return true
		}
	}
	return false
}
