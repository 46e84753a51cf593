package layering

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Counts has the number of breaches of each rule of writing in each folder.
type Counts map[string]map[string]int

// Breaches returns the places that break each rule, by folder and rule.
func (t *Tree) Breaches() map[string]map[string][]string {
	all := map[string]map[string][]string{}
	for _, rule := range WordRules() {
		rule.find(t, func(folder, place string) {
			if all[folder] == nil {
				all[folder] = map[string][]string{}
			}
			all[folder][rule.Name] = append(all[folder][rule.Name], place)
		})
	}
	return all
}

// Count counts places.
func Count(places map[string]map[string][]string) Counts {
	c := Counts{}
	for folder, rules := range places {
		c[folder] = map[string]int{}
		for rule, at := range rules {
			c[folder][rule] = len(at)
		}
	}
	return c
}

// String returns c in the form of words.txt: a line for each folder with a
// breach.
func (c Counts) String() string {
	var b strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(c)) {
		b.WriteString(folder)
		for _, rule := range slices.Sorted(maps.Keys(c[folder])) {
			if n := c[folder][rule]; n > 0 {
				fmt.Fprintf(&b, " %s=%d", rule, n)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseCounts reads words.txt.
func ParseCounts(text string) (Counts, error) {
	c := Counts{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if c[fields[0]] != nil {
			return nil, fmt.Errorf("%s has two lines: keep one", fields[0])
		}
		c[fields[0]] = map[string]int{}
		for _, f := range fields[1:] {
			rule, number, _ := strings.Cut(f, "=")
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%s: %q is not RULE=NUMBER", fields[0], f)
			}
			c[fields[0]][rule] = n
		}
	}
	return c, nil
}

// Compare returns where now exceeds allowed, and where it is below.
func (c Counts) Compare(allowed Counts) (risen, fallen []string) {
	folders := maps.Clone(allowed)
	maps.Copy(folders, c)
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		for _, rule := range WordRules() {
			now, was := c[folder][rule.Name], allowed[folder][rule.Name]
			text := fmt.Sprintf("%s %s: %d, was %d", folder, rule.Name, now, was)
			if now > was {
				risen = append(risen, text)
			} else if now < was {
				fallen = append(fallen, text)
			}
		}
	}
	return risen, fallen
}
