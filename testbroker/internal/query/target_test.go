package query_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/query"
)

func TestTargetsSelectDocuments(t *testing.T) {
	all := documents(t, twins)
	for _, c := range []struct {
		text string
		from query.Collection
		want string
	}{
		{"*", query.Devices, "abc"},
		{"tags.site = 'Ulm'", query.Devices, "bc"},
		{"WHERE tags.site = 'Ulm'", query.Devices, "bc"},
		{"deviceId IN ['a', 'b'];", query.Devices, "ab"},
		{"devices.deviceId = 'a'", query.Devices, "a"},
		{"from devices", query.Devices, "abc"},
		{"from devices *", query.Devices, "abc"},
		{"from devices.modules where devices.modules.deviceId = 'a'", query.Modules, "a"},
		{"FROM devices.jobs WHERE devices.jobs.deviceId = 'b'", query.Jobs, "b"},
	} {
		q, err := query.ParseCondition(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.from, q.From(), c.text)
		require.True(t, q.Whole())
		ids := ""
		for _, d := range q.Run(all) {
			ids += d["deviceId"].(string)
		}
		require.Equal(t, c.want, ids, c.text)
	}
}

func TestBadTargetsNameThePosition(t *testing.T) {
	for _, c := range []struct {
		text     string
		position int
		names    string
	}{
		{"", 1, "a property"},
		{"SELECT * FROM devices", 1, "[[SELECT]]"},
		{"true GROUP BY status", 6, "the end"},
		{"* true", 3, "the end"},
		{"FROM devices true", 14, "WHERE or the end"},
		{"FROM devices.things", 6, "devices.jobs"},
		{"FROM things", 6, "want devices"},
		{"tags.site =", 12, "a property"},
		{"'open", 1, "does not end"},
	} {
		_, err := query.ParseCondition(c.text)
		var bad *query.Error
		require.ErrorAs(t, err, &bad, c.text)
		require.Equal(t, c.position, bad.Position, "%s: %s", c.text, bad.Text)
		require.Contains(t, bad.Text, c.names)
	}
}

// Any text is a target or an error with a position in it.
func FuzzParseCondition(f *testing.F) {
	for _, text := range []string{"*", "tags.a = 1", "FROM devices.modules WHERE moduleId = 'm'", "WHERE NOT (a IN [1])"} {
		f.Add(text)
	}
	all := documents(f, twins)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := query.ParseCondition(text)
		if err != nil {
			var bad *query.Error
			require.ErrorAs(t, err, &bad)
			require.True(t, bad.Position >= 1 && bad.Position <= len(text)+1, "%d: %q", bad.Position, text)
			return
		}
		require.True(t, q.Whole())
		for _, d := range q.Run(all) {
			require.True(t, q.Accepts(d))
		}
	})
}
