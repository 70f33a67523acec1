package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	tableRow  = regexp.MustCompile(`^\s*\|`)
	tableRule = regexp.MustCompile(`^\s*\|[-:| ]+\|\s*$`)
	cell      = regexp.MustCompile(`\\\||\|`)
)

// TestTables_AreWhole checks that each row of a table follows the table's head, with as many cells. docs/bulk-client.md had a blank line
// within two tables: the rows after it were shown as text.
func TestTables_AreWhole(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		lines := strings.Split(fence.ReplaceAllStringFunc(read(t, page), blankLines), "\n")
		columns := 0
		for i, line := range lines {
			switch {
			case !tableRow.MatchString(line) || strings.HasPrefix(line, "    "):
				columns = 0
			case columns == 0 && (i+1 == len(lines) || !tableRule.MatchString(lines[i+1])):
				t.Errorf("%s:%d: this row belongs to no table: %s", page, i+1, line)
			case columns == 0:
				columns = cells(line)
				checked++
			case cells(line) != columns:
				t.Errorf("%s:%d: %d cells; want %d: %s", page, i+1, cells(line), columns, line)
			}
		}
	}
	if checked < 100 {
		t.Errorf("found %d tables; want more than 100", checked)
	}
}

// cells counts the cells of a row, in which \| is text.
func cells(row string) int {
	n := -1
	for _, bar := range cell.FindAllString(row, -1) {
		if bar == "|" {
			n++
		}
	}
	if !strings.HasSuffix(strings.TrimRight(row, " "), "|") {
		n++
	}
	return n
}

// blankLines keeps the line numbers of what follows.
func blankLines(code string) string { return strings.Repeat("\n", strings.Count(code, "\n")) }
