package query_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/query"
)

// twins are the documents of the tests.
const twins = `[
	{"deviceId":"a","status":"enabled","version":2,"capabilities":{"iotEdge":true},
		"tags":{"site":"Köln","floor":1,"group":"x","kind":"x","a-b":{"c":1},"none":null,"list":[1]},
		"properties":{"desired":{"rate":60,"$version":3},"reported":{"rate":60,"mode":"wifi","on":true,"$version":4}}},
	{"deviceId":"b","status":"disabled","version":3,"capabilities":{"iotEdge":false},
		"tags":{"site":"Ulm","floor":2,"Site":"other"},
		"properties":{"desired":{"rate":30,"$version":1},"reported":{"rate":20.5,"mode":"wired","on":false,"$version":1}}},
	{"deviceId":"c","status":"enabled","version":4,"capabilities":{"iotEdge":false},
		"tags":{"site":"Ulm","floor":"2"},
		"properties":{"desired":{"$version":1},"reported":{"mode":"it's","$version":1}}}
]`

func documents(t testing.TB, text string) []query.Document {
	var all []query.Document
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&all))
	return all
}

func TestConditionsSelectDocuments(t *testing.T) {
	all := documents(t, twins)
	for _, c := range []struct{ condition, want string }{
		{"true", "abc"}, {"false", ""}, {"null", ""}, {"'x'", ""}, {"tags.nothing", ""}, {"undefined", ""},
		{"status = 'enabled'", "ac"}, {"status != 'enabled'", "b"}, {"status <> \"enabled\"", "b"},
		{"STATUS = 'enabled'", "ac"}, {"devices.deviceId = 'a'", "a"}, {"DEVICES.deviceid='a'", "a"},
		{"version < 3", "a"}, {"version <= 3", "ab"}, {"version > 3", "c"}, {"version >= 3", "bc"}, {"3 < version", "c"},
		{"deviceId >= 'b'", "bc"}, {"version = 0x2", "a"}, {"version = 2.0e0", "a"}, {"version > -1", "abc"},
		{"capabilities.iotEdge = true", "a"}, {"capabilities.IOTEDGE = TRUE", "a"}, {"capabilities.iotEdge", "a"},
		{"capabilities.iotEdge != true", "bc"}, {"capabilities.iotEdge > false", ""},
		// Names of users are found as they are written.
		{"tags.site = 'Ulm'", "bc"}, {"tags.Site = 'other'", "b"}, {"tags.SITE = 'Ulm'", ""},
		{"properties.reported.MODE = 'wifi'", ""}, {"Properties.Reported.mode = 'wifi'", "a"},
		// Undefined and null.
		{"properties.desired.rate != 1", "ab"}, {"NOT properties.desired.rate = 60", "b"},
		{"tags.none = null", "a"}, {"tags.none != null", ""}, {"tags.site != null", "abc"}, {"tags.kind = null", ""},
		{"is_defined(tags.none)", "a"}, {"NOT is_defined(tags.kind)", "bc"}, {"is_null(tags.none)", "a"},
		{"tags.kind = undefined", ""}, {"properties.reported != null", "abc"}, {"tags = tags", ""},
		// Three values of AND, OR and NOT.
		{"tags.kind = 'x' OR true", "abc"}, {"true OR tags.kind = 'x'", "abc"}, {"tags.kind = 'x' AND true", "a"},
		{"NOT (tags.kind = 'x' AND false)", "abc"}, {"NOT (tags.kind = 'x' OR false)", ""}, {"NOT tags.kind", ""},
		{"status = 'enabled' AND version = 2 OR deviceId = 'b'", "ab"},
		{"status = 'enabled' and (version = 4 or deviceId = 'b')", "c"}, {"NOT NOT version = 2", "a"},
		{"NOT version = 2 AND status = 'enabled'", "c"}, {"not (version = 2 and status = 'enabled')", "bc"},
		// Types.
		{"tags.floor = 2", "b"}, {"tags.floor = '2'", "c"}, {"tags.floor != 2", "ac"}, {"tags.floor >= 1", "ab"},
		{"as_number(tags.floor) >= 2", "bc"}, {"is_number(tags.floor)", "ab"}, {"is_string(tags.floor)", "c"},
		{"is_bool(properties.reported.on)", "ab"}, {"IS_OBJECT(properties)", "abc"}, {"is_array(tags.list)", "a"},
		{"is_primitive(tags.none)", "a"}, {"is_primitive(tags)", ""},
		// Lists.
		{"properties.reported.mode IN ['wired', 'wifi']", "ab"}, {"properties.reported.mode nin ['wired', 'wifi']", "c"},
		{"version in [2, -1, null, true]", "a"}, {"properties.desired.rate NIN [60]", "b"}, {"version IN []", ""},
		// Strings.
		{"startswith(tags.site, 'K')", "a"}, {"STARTS_WITH(devices.deviceId, 'a')", "a"}, {"endswith(tags.site, 'lm')", "bc"},
		{"ends_with(tags.site, 'öln')", "a"}, {"contains(tags.site, 'l')", "abc"}, {"contains(tags.floor, '2')", "c"},
		{`properties.reported.mode = 'it\'s'`, "c"}, {`properties.reported.mode = "it's"`, "c"},
		{`tags.site = 'K\u00f6ln'`, "a"}, {`startswith('\ud83d\ude00', '😀')`, "abc"}, {`'\\' = "\\"`, "abc"},
		// Paths.
		{"tags.[[group]] = 'x'", "a"}, {"tags.[[a-b]].c = 1", "a"}, {"tags['a-b']['c'] = 1", "a"},
		{"[[tags]].kind = 'x'", "a"},
		{"properties.reported.$version > 3", "a"}, {"properties.desired.$version = properties.reported.$version", "bc"},
		{"tags.site.more = 1", ""}, {"tags.list['0'] = 1", ""},
		// Arithmetic.
		{"version + 1 * 2 = 4", "a"}, {"(version + 1) * 2 = 6", "a"}, {"version - 1 - 1 = 0", "a"}, {"version -1 = 1", "a"},
		{"version % 2 = 0", "ac"}, {"version / 0 = 1", ""}, {"is_defined(1 / 0)", ""}, {"tags.site + 1 > 0", ""},
		{"is_defined(as_number('NaN'))", ""}, {"is_defined(as_number('x'))", ""},
	} {
		t.Run(c.condition, func(t *testing.T) {
			q, err := query.Parse("SELECT * FROM devices WHERE " + c.condition)
			require.NoError(t, err)
			got := ""
			for _, d := range q.Run(all) {
				got += d["deviceId"].(string)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestSelectMakesRows(t *testing.T) {
	all := documents(t, twins)
	for _, c := range []struct{ text, want string }{
		{"SELECT deviceId FROM devices", `[{"deviceId":"a"},{"deviceId":"b"},{"deviceId":"c"}]`},
		{"select top 2 deviceId as id, tags.floor FROM devices;", `[{"id":"a","floor":1},{"id":"b","floor":2}]`},
		{"SELECT TOP 1 DeviceId, devices.status AS [[the state]] FROM devices where deviceId > 'a'",
			`[{"DeviceId":"b","the state":"disabled"}]`},
		{"SELECT properties.desired.rate, tags.none FROM devices", `[{"rate":60,"none":null},{"rate":30},{}]`},
		{"SELECT tags.[[a-b]] FROM devices WHERE deviceId='a'", `[{"a-b":{"c":1}}]`},
		{"SELECT tags.count FROM devices WHERE deviceId='a'", `[{}]`},
		{"SELECT deviceId FROM devices WHERE false", `[]`},
		// Aggregates.
		{"SELECT COUNT() AS n FROM devices", `[{"n":3}]`},
		{"SELECT count(), sum(version), COUNT() AS n FROM devices WHERE version > 9", `[{"$1":0,"$2":0,"n":0}]`},
		{"SELECT avg(version) AS a, min(version) AS b, max(version) AS c, sum(version) AS d FROM devices",
			`[{"a":3,"b":2,"c":4,"d":9}]`},
		{"SELECT avg(tags.floor) AS a, min(tags.floor) AS b, max(tags.site) AS c, min(tags.site) AS d FROM devices",
			`[{"a":1.5,"b":1,"c":"Ulm","d":"Köln"}]`},
		{"SELECT avg(tags.x), min(tags.x), sum(devices.tags.x) FROM devices", `[{"$3":0}]`},
		{"SELECT status, COUNT() AS n FROM devices GROUP BY status",
			`[{"status":"enabled","n":2},{"status":"disabled","n":1}]`},
		{"SELECT TOP 1 tags.site AS s, COUNT() FROM devices WHERE status='enabled' GROUP BY devices.tags.site, status",
			`[{"s":"Köln","$1":1}]`},
		{"SELECT properties.desired.rate AS r, count() AS n FROM devices GROUP BY properties.desired.rate",
			`[{"r":60,"n":1},{"r":30,"n":1},{"n":1}]`},
		{"SELECT tags.floor FROM devices GROUP BY tags.floor", `[{"floor":1},{"floor":2},{"floor":"2"}]`},
		{"SELECT Status FROM devices GROUP BY STATUS", `[{"Status":"enabled"},{"Status":"disabled"}]`},
		{"SELECT deviceId FROM devices WHERE deviceId = 'z' GROUP BY deviceId", `[]`},
	} {
		t.Run(c.text, func(t *testing.T) {
			q, err := query.Parse(c.text)
			require.NoError(t, err)
			require.False(t, q.Whole())
			got, err := json.Marshal(q.Run(all))
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got))
		})
	}
}

// JSON cannot express these sums.
func TestSumsOutOfRangeAreUndefined(t *testing.T) {
	q, err := query.Parse("SELECT sum(x), avg(x), max(x) FROM devices")
	require.NoError(t, err)
	got, err := json.Marshal(q.Run(documents(t, `[{"x":1e308},{"x":1e308}]`)))
	require.NoError(t, err)
	require.JSONEq(t, `[{"$3":1e308}]`, string(got))
}

func TestModulesAreACollection(t *testing.T) {
	modules := documents(t, `[{"deviceId":"a","moduleId":"m"},{"deviceId":"b","moduleId":"n"}]`)
	for _, where := range []string{"moduleId = 'm'", "devices.moduleId='m'", "devices.modules.moduleId = 'm'",
		"Devices . Modules . deviceId = 'a'"} {
		q, err := query.Parse("select devices.modules.moduleId from devices.modules where " + where)
		require.NoError(t, err)
		require.Equal(t, query.Modules, q.From())
		require.Equal(t, []query.Document{{"moduleId": "m"}}, q.Run(modules), where)
	}
}

func TestErrorsNameThePosition(t *testing.T) {
	for _, c := range []struct {
		text     string
		position int
		names    string
	}{
		{"", 1, "the end, want SELECT"},
		{"DELETE * FROM devices", 1, "DELETE, want SELECT"},
		{"SELECT FROM devices", 8, "[[FROM]]"},
		{"SELECT * FROM", 14, "the end, want devices"},
		{"SELECT * FROM hubs", 15, "hubs, want devices"},
		{"SELECT * FROM devices.things", 15, "collection devices.things"},
		{"SELECT * FROM devices WHERE", 28, "the end, want a property"},
		{"SELECT * FROM devices x", 23, "x, want WHERE"},
		{"SELECT *, deviceId FROM devices", 9, ", want FROM"},
		{"SELECT TOP 0 * FROM devices", 12, "0, want a whole number"},
		{"SELECT TOP 1.5 * FROM devices", 12, "1.5, want a whole number"},
		{"SELECT TOP 99999999999 * FROM devices", 12, "want a whole number"},
		{"SELECT TOP 'x' * FROM devices", 12, "want a whole number"},
		{"SELECT median(version) FROM devices", 8, "the aggregates are"},
		{"SELECT tags.count() FROM devices", 8, "no aggregate"},
		{"SELECT [[count]]() FROM devices", 8, "no aggregate"},
		{"SELECT count(*) FROM devices", 14, "*, want )"},
		{"SELECT avg() FROM devices", 12, "), want a name"},
		{"SELECT tags.a, properties.desired.a FROM devices", 16, "give one an alias"},
		{"SELECT deviceId, COUNT() FROM devices", 8, "deviceId is neither"},
		{"SELECT tags.A FROM devices GROUP BY tags.a", 8, "tags.A is neither"},
		{"SELECT * FROM devices GROUP BY status", 1, "name the columns"},
		{"SELECT * FROM devices GROUP status", 29, "status, want BY"},
		{"SELECT * FROM devices WHERE tags.group = 1", 34, "write [[group]]"},
		{"SELECT * FROM devices WHERE tags. = 1", 35, "=, want a name"},
		{"SELECT * FROM devices WHERE tags[0] = 1", 34, "0, want a name in quotes"},
		{"SELECT * FROM devices WHERE tags.[[]] = 1", 34, "write [[name]]"},
		{"SELECT * FROM devices WHERE tags.[[a = 1", 34, "write [[name]]"},
		{"SELECT * FROM devices WHERE a = 'x", 33, "close it with '"},
		{`SELECT * FROM devices WHERE 'ö' = '\n'`, 36, "unknown escape"},
		{`SELECT * FROM devices WHERE a = '\u12'`, 34, "unknown escape"},
		{"SELECT * FROM devices WHERE a = 1x", 33, "not a number"},
		{"SELECT * FROM devices WHERE a = 1e999", 33, "out of range"},
		{"SELECT * FROM devices WHERE a = -'x'", 34, "want a number"},
		{"SELECT * FROM devices WHERE a == 1", 32, "=, want a property"},
		{"SELECT * FROM devices WHERE a LIKE 'x'", 31, "LIKE, want WHERE"},
		{"SELECT * FROM devices WHERE a IN ('x')", 34, "list in brackets"},
		{"SELECT * FROM devices WHERE a IN [tags.x]", 35, "want a literal"},
		{"SELECT * FROM devices WHERE a IN ['x'", 38, "the end, want ]"},
		{"SELECT * FROM devices WHERE a NOT IN ['x']", 31, "NIN"},
		{"SELECT * FROM devices WHERE (a = 1", 35, "the end, want )"},
		{"SELECT * FROM devices WHERE a = 1)", 34, "), want WHERE"},
		{"SELECT * FROM devices WHERE lower(a) = 'x'", 29, "lower is no function"},
		{"SELECT * FROM devices WHERE a.is_defined(b)", 29, "no function"},
		{"SELECT * FROM devices WHERE is_defined()", 40, "), want a property"},
		{"SELECT * FROM devices WHERE contains(a)", 29, "1 arguments, want 2"},
		{"SELECT * FROM devices WHERE is_null(a, b, c)", 29, "3 arguments, want 1"},
		{"SELECT * FROM devices WHERE a ? 1", 31, "'?'"},
		{"SELECT * FROM devices; SELECT", 24, "SELECT, want"},
		{"SELECT \xff FROM devices", 1, "UTF-8"},
		{"SELECT * FROM devices WHERE a = '" + strings.Repeat("x", 8<<10) + "'", 8193, "at most 8192"},
		{"SELECT * FROM devices WHERE " + strings.Repeat("(", 40), 61, "32 levels"},
		{"SELECT * FROM devices WHERE " + strings.Repeat("NOT ", 40), 157, "32 levels"},
	} {
		t.Run(fmt.Sprintf("%.60s", c.text), func(t *testing.T) {
			_, err := query.Parse(c.text)
			var bad *query.Error
			require.ErrorAs(t, err, &bad)
			require.Equal(t, c.position, bad.Position, bad.Text)
			require.Contains(t, bad.Text, c.names)
			require.Less(t, len(bad.Text), 200)
		})
	}
}

func TestNestingHasALimit(t *testing.T) {
	nested := func(n int) string {
		return "SELECT * FROM devices WHERE " + strings.Repeat("(", n) + "true" + strings.Repeat(")", n)
	}
	_, err := query.Parse(nested(31)) // the condition itself is a level
	require.NoError(t, err)
	_, err = query.Parse(nested(32))
	require.Error(t, err)
	long := "SELECT * FROM devices WHERE true" + strings.Repeat(" OR tags.a + 1 = 2", 400)
	q, err := query.Parse(long)
	require.NoError(t, err, "a chain is no nesting")
	require.Len(t, q.Run(documents(t, twins)), 3)
}

// Any text is a query or an error with a position in it, and a query runs on any documents.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"SELECT * FROM devices",
		"SELECT TOP 3 tags.a AS b, [[x y]] FROM devices.modules WHERE NOT (a = 'x' OR b IN [1, null]);",
		"SELECT status, COUNT(), avg(tags.n) FROM devices WHERE is_defined(tags['a']) AND a+1*2 >= -0x1F GROUP BY status",
		`SELECT * FROM devices WHERE startswith(a, '\u00f6\'') AND b <> "\\" AND c != undefined`,
	} {
		f.Add(text)
	}
	all := documents(f, twins)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := query.Parse(text)
		if err != nil {
			var bad *query.Error
			require.ErrorAs(t, err, &bad)
			require.True(t, bad.Position >= 1 && bad.Position <= len(text)+1, "%d: %q", bad.Position, text)
			require.Less(t, len(bad.Text), 400)
			return
		}
		rows := q.Run(all)
		_, err = json.Marshal(rows)
		require.NoError(t, err)
		if q.Top() > 0 {
			require.LessOrEqual(t, len(rows), q.Top())
		}
		if q.Whole() {
			for _, r := range rows {
				require.True(t, q.Accepts(r))
			}
		}
	})
}

// The pages of a grouped query are its rows, each once, and TOP counts all of them.
func TestPagesOfGroups(t *testing.T) {
	all := documents(t, `[{"x":1},{"x":2},{"x":1},{"x":3},{"x":4},{"x":5},{"x":2}]`)
	for text, want := range map[string]int{"": 5, "TOP 5": 5, "TOP 4": 4, "TOP 1": 1} {
		q, err := query.Parse("SELECT " + text + " x, count() AS n FROM devices GROUP BY x")
		require.NoError(t, err)
		rows := q.Run(all)
		require.Len(t, rows, want)
		for size := 1; size <= want+1; size++ {
			var got []query.Document
			for more := true; more; {
				var page []query.Document
				page, more = q.Groups(all, len(got), size)
				require.Equal(t, more, len(got)+size < want)
				got = append(got, page...)
			}
			require.Equal(t, rows, got)
		}
		page, more := q.Groups(all, want+1, 1)
		require.Empty(t, page)
		require.False(t, more)
	}
}
