package access

import "testing"

// The rows are the whole rule: which role is enough for which.
func TestRole_Includes(t *testing.T) {
	enough := map[Role]map[Role]bool{
		Viewer:   {Any: true, Viewer: true},
		Operator: {Any: true, Viewer: true, Operator: true, Facts: true},
		Admin:    {Any: true, Viewer: true, Operator: true, Facts: true, Admin: true},
		Facts:    {Any: true, Facts: true},
		Any:      {},
		"":       {},
		"root":   {},
	}
	for has, rows := range enough {
		for _, needed := range []Role{Any, Viewer, Operator, Admin, Facts, "", "root"} {
			if got := has.Includes(needed); got != rows[needed] {
				t.Errorf("%q for what needs %q: %v, want %v", has, needed, got, rows[needed])
			}
		}
	}
}

func TestPerson_MayInRoomsOfEachGrant(t *testing.T) {
	ann := Person{Grants: []Grant{{Role: Viewer}, {Role: Operator, Rooms: []string{"sale", "vip"}}, {Role: Admin, Rooms: []string{"test"}}}}
	for _, row := range []struct {
		needed Role
		room   string
		want   bool
	}{
		{Viewer, "", true}, {Viewer, "other", true},
		{Operator, "sale", true}, {Operator, "vip", true}, {Operator, "test", true}, {Operator, "other", false}, {Operator, "", false},
		{Admin, "test", true}, {Admin, "sale", false}, {Admin, "", false},
		{Facts, "sale", true}, {Facts, "other", false},
	} {
		if got := ann.May(row.needed, row.room); got != row.want {
			t.Errorf("%s in %q: %v, want %v", row.needed, row.room, got, row.want)
		}
	}
	// A room without a name is in nobody's list, however it was written.
	empty := Person{Grants: []Grant{{Role: Admin, Rooms: []string{""}}}}
	if empty.May(Admin, "") {
		t.Error("a grant for the room \"\" is for the whole deployment")
	}
}
