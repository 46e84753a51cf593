package layering

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// TitlesFrom is the commit after which every title has to keep rule G7: the log
// is searched by package and read in one line each.
const TitlesFrom = "89419c5f9534"

// maxTitle is the number of characters of a title that most tools show.
const maxTitle = 72

var (
	titleForm = regexp.MustCompile(`^([A-Za-z0-9_./-]+(?:, [A-Za-z0-9_./-]+)*): (\S+)`)
	clauses   = regexp.MustCompile(`(?:^|[;:,] |/ )(?:who|whoever|whom|whose|what|nobody|somebody|everybody|one who|those who)\b`)
)

// noVerbs are words that begin a subject, or a report of past work, and not a
// verb in the imperative.
var noVerbs = strings.Fields("a an the this that these those it its he she they we you i one no each every all any some both none only not more less " +
	"who whoever whom whose what which when where why how nobody somebody everybody anybody nothing something everything " +
	"is are was were be been has have had does did")

// endLikeVerbs are imperatives that look like another form of a verb.
var endLikeVerbs = strings.Fields("pass address process access express discuss press cross focus guess miss bypass suppress compress dismiss assess " +
	"possess alias canvass toss need feed embed seed speed proceed exceed succeed shed spread read lead thread add bring sing ring cling swing")

// CheckTitle returns an error for a commit's title that breaks rule G7.
func CheckTitle(title string) error {
	m := titleForm.FindStringSubmatch(title)
	if m == nil {
		return errors.New("the title is not of the form \"package: verb and object\"")
	}
	verb := strings.TrimRight(m[2], ",;:")
	switch n := utf8.RuneCountInString(title); {
	case n > maxTitle:
		return fmt.Errorf("the title is %d characters long; the maximum is %d", n, maxTitle)
	case strings.ToLower(verb) != verb:
		return fmt.Errorf("%q is not in lower case", verb)
	case slices.Contains(noVerbs, verb):
		return fmt.Errorf("%q is no verb in the imperative", verb)
	case !slices.Contains(endLikeVerbs, verb) && (strings.HasSuffix(verb, "s") || strings.HasSuffix(verb, "ed") || strings.HasSuffix(verb, "ing")):
		return fmt.Errorf("%q is not the imperative of a verb", verb)
	case clauses.MatchString(title[len(m[1])+2:]):
		return errors.New("a clause (who, what, nobody ...) stands where the verb or its subject belongs")
	}
	return nil
}
