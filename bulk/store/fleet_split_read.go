package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// readParts returns the other parts of a group whose first part is g: nil where a shard is away or has lost its part, which g.Away and
// g.Lost name.
func (f *allShards) readParts(ctx context.Context, s *Store, g *Group) ([]*found, error) {
	p, err := f.partsOf(s, &g.GroupSpec)
	if err != nil {
		return nil, err
	}
	read := make([]*found, len(p))
	errs := p.others(func(i int, s *Store) error {
		part, err := s.one(ctx, g.ID)
		if err == nil && part != nil && part.Parts == g.Parts {
			read[i] = part
		}
		return err
	})
	g.Away, g.Lost = nil, nil
	for i := 1; i < len(p); i++ {
		switch {
		case errs[i] == nil && read[i] == nil:
			g.Lost = append(g.Lost, p[i].o.Shard)
		case errors.Is(errs[i], ErrStore):
			g.Away = append(g.Away, p[i].o.Shard)
		case errs[i] != nil:
			return nil, errs[i]
		}
	}
	return read, nil
}

// merged returns a group with the counts of all its parts; g is the first part, on s.
func (f *allShards) merged(ctx context.Context, s *Store, g Group) (Group, error) {
	if g.Split < 2 || g.joined() {
		return g, nil
	}
	read, err := f.readParts(ctx, s, &g)
	if err != nil {
		return Group{}, err
	}
	g.merge(read)
	return g, nil
}

// mergeListed adds the counts of all parts to the split groups among groups, whose first parts they are, and leaves out those whose status
// is then another one.
func (f *allShards) mergeListed(ctx context.Context, groups []Group, status Status) ([]Group, error) {
	wanted := map[int][]string{} // ids by shard
	for i := range groups {
		g := &groups[i]
		if g.Split < 2 || g.joined() {
			continue
		}
		shards, err := g.shardsOf()
		if err != nil {
			return nil, err
		}
		for _, n := range shards[1:] {
			wanted[n] = append(wanted[n], g.ID)
		}
	}
	if len(wanted) == 0 {
		return groups, nil
	}
	there, errs := each(ctx, f, func(ctx context.Context, s *Store) (map[string]*found, error) {
		byID := map[string]*found{}
		list, err := s.read(ctx, "id", wanted[s.o.Shard]...)
		for i := range list {
			byID[list[i].ID] = &list[i]
		}
		return byID, err
	})
	kept := groups[:0]
	for _, g := range groups {
		if g.Split > 1 && !g.joined() {
			shards, _ := g.shardsOf()
			parts := make([]*found, len(shards))
			for i, n := range shards[1:] {
				switch part := there[n][g.ID]; {
				case errs[n] != nil:
					g.Away = append(g.Away, n)
				case part == nil || part.Parts != g.Parts:
					g.Lost = append(g.Lost, n)
				default:
					parts[i+1] = part
				}
			}
			g.merge(parts)
		}
		if status == "" || g.Status == status {
			kept = append(kept, g)
		}
	}
	return kept, nil
}

// results reads outcomes of a split group. Its cursor has the places in all parts, separated by slashes, because more outcomes may
// follow in each.
func (p parts) results(ctx context.Context, group, cursor string, limit int) (Page, error) {
	at := make([]string, len(p))
	if cursor != "" {
		if at = strings.Split(cursor, "/"); len(at) != len(p) {
			return Page{}, refuse(CodeInvalid, "cursor %q: use next of the previous page", cursor)
		}
	}
	var page Page
	for i, s := range p {
		part, err := s.Results(ctx, group, at[i], limit)
		if i > 0 && isCode(err, CodeNotFound) {
			continue // it was lost, or is past its retention
		}
		if err != nil {
			return Page{}, err
		}
		for _, o := range part.Outcomes {
			at[i] = o.Cursor
			o.Cursor = strings.Join(at, "/")
			page.Outcomes = append(page.Outcomes, o)
		}
		at[i] = part.Next
		if len(page.Outcomes) > 0 {
			break // a page of one part has as many bytes as a page may have
		}
	}
	page.Next = strings.Join(at, "/")
	return page, nil
}

// dead reads dead letters of a split group, one part after the other. Its cursor is <part>.<cursor in the part>.
func (p parts) dead(ctx context.Context, group, cursor string, limit int) (Page, error) {
	number, inner, _ := strings.Cut(cmp.Or(cursor, "0."), ".")
	part, err := strconv.Atoi(number)
	if err != nil || part < 0 || part >= len(p) {
		return Page{}, refuse(CodeInvalid, "cursor %q: use next of the previous page", cursor)
	}
	for ; ; part, inner = part+1, "" {
		page, err := p[part].Dead(ctx, group, inner, limit)
		if part > 0 && isCode(err, CodeNotFound) {
			page, err = Page{}, nil // it was lost, or is past its retention
		}
		switch last := part == len(p)-1; {
		case err != nil:
			return Page{}, err
		case page.Next != "":
			page.Next = fmt.Sprintf("%d.%s", part, page.Next)
			return page, nil
		case last:
			return page, nil
		case len(page.Outcomes) > 0:
			page.Next = fmt.Sprintf("%d.", part+1)
			return page, nil
		}
	}
}
