package dialect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples of MQTT 3.1.1, section 4.7, and of MQTT 5, section 4.8.2.
func TestFiltersMatchAsTheSpecificationSays(t *testing.T) {
	for _, c := range []struct {
		filter     string
		yes, never []string
	}{
		{"sport/tennis/player1/#", []string{"sport/tennis/player1", "sport/tennis/player1/ranking",
			"sport/tennis/player1/score/wimbledon"}, []string{"sport/tennis/player12", "sport/tennis"}},
		{"sport/#", []string{"sport", "sport/", "sport/a/b"}, []string{"sports", "/sport"}},
		{"#", []string{"a", "/", "a/b", "/a"}, []string{"$SYS", "$SYS/monitor/Clients"}},
		{"sport/tennis/#", []string{"sport/tennis"}, nil},
		{"+", []string{"a", "finance"}, []string{"/finance", "a/b", "$SYS"}},
		{"+/tennis/#", []string{"sport/tennis", "a/tennis/b", "/tennis"}, []string{"tennis", "a/b/tennis", "$a/tennis"}},
		{"sport/tennis/+", []string{"sport/tennis/player1", "sport/tennis/player2", "sport/tennis/"},
			[]string{"sport/tennis/player1/ranking", "sport/tennis"}},
		{"sport/+", []string{"sport/"}, []string{"sport"}},
		{"sport/+/player1", []string{"sport/a/player1", "sport//player1"}, []string{"sport/player1", "sport/a/b/player1"}},
		{"+/+", []string{"/finance", "a/b"}, []string{"finance", "a/b/c"}},
		{"/+", []string{"/finance"}, []string{"finance"}},
		{"+/monitor/Clients", []string{"a/monitor/Clients"}, []string{"$SYS/monitor/Clients"}},
		{"$SYS/#", []string{"$SYS", "$SYS/monitor/Clients"}, []string{"a", "SYS"}},
		{"$SYS/monitor/+", []string{"$SYS/monitor/Clients"}, []string{"$SYS/monitor"}},
		{"/", []string{"/"}, []string{"", "a", "//"}},
		{"ACCOUNTS", []string{"ACCOUNTS"}, []string{"Accounts", "ACCOUNTS/", "/ACCOUNTS"}},
		{"a//b", []string{"a//b"}, []string{"a/b"}},
		{"+/#", []string{"a", "a/b", "/"}, nil},
	} {
		require.True(t, validFilter(c.filter), c.filter)
		for _, topic := range c.yes {
			require.True(t, matches(c.filter, []byte(topic)), "%s %s", c.filter, topic)
		}
		for _, topic := range c.never {
			require.False(t, matches(c.filter, []byte(topic)), "%s %s", c.filter, topic)
		}
	}
	for _, bad := range []string{"", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "a/b+/c", "#/a", "##", "a/#/",
		"++", "a\x00"} {
		require.False(t, validFilter(bad), "%q", bad)
	}
}

func TestSharedSubscriptions(t *testing.T) {
	for filter, want := range map[string]string{"$share/g/a/+/b": "a/+/b", "$share/g//a": "/a",
		"$shared/g/a": "$shared/g/a", "$queue/a/+": "a/+", "$exclusive/a/b": "a/b",
		"a/$share/b": "a/$share/b", "$share/consumer1/sport/tennis/+": "sport/tennis/+"} {
		got, ok := unshared(filter)
		require.True(t, ok && validFilter(got), filter)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/a#/a"} {
		got, ok := unshared(bad)
		require.False(t, ok && validFilter(got), bad)
	}
}

// slow is another way to say what matches says: level by level.
func slow(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		switch {
		case level == "#":
			return i <= len(t)
		case i >= len(t) || level != "+" && level != t[i]:
			return false
		}
	}
	return len(f) == len(t)
}

func FuzzMatches(f *testing.F) {
	f.Add("a/+/b/#", "a//b")
	f.Add("+/#", "$a")
	f.Add("/+", "/")
	f.Add("a/#", "a")
	f.Fuzz(func(t *testing.T, filter, topic string) {
		if !validFilter(filter) || strings.ContainsAny(topic, "+#\x00") || topic == "" {
			return
		}
		require.Equal(t, slow(filter, topic), matches(filter, []byte(topic)), "%q %q", filter, topic)
	})
}
