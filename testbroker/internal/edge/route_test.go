package edge_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/edge"
)

func TestRoutesMatchTheirSources(t *testing.T) {
	leaf, plain := edge.Source{}, edge.Source{Module: "a"}
	x, y := edge.Source{Module: "a", Output: "x"}, edge.Source{Module: "a", Output: "y"}
	other := edge.Source{Module: "b", Output: "x"}
	all := []edge.Source{leaf, plain, x, y, other}
	for from, want := range map[string][]edge.Source{
		"/*":                                all,
		"/messages":                         all,
		"/messages/*":                       all,
		"/messages/modules/*":               {plain, x, y, other},
		"/messages/modules/a/*":             {plain, x, y},
		"/messages/modules/a/outputs/*":     {x, y},
		"/messages/modules/a/outputs/x":     {x},
		"/messages/modules/a/outputs/x/*":   {x},
		"/messages/modules/A/outputs/x":     nil,
		"/messages/modules/$edgeAgent/*":    nil,
		"/messages/modules/c/outputs/x.y-1": nil,
	} {
		r, err := edge.ParseRoute("FROM " + from + " INTO $upstream")
		require.NoError(t, err, from)
		var got []edge.Source
		for _, s := range all {
			if r.Matches(s) {
				got = append(got, s)
			}
		}
		require.Equal(t, want, got, from)
	}
}

func TestRoutesEndAtEachEndpointOnce(t *testing.T) {
	routes, err := edge.ParseRoutes([]string{
		`FROM /messages/modules/a/outputs/x INTO BrokeredEndpoint("/modules/b/inputs/in")`,
		`from /messages/modules/a/* into brokeredendpoint( '/modules/b/inputs/in' )`,
		" FROM\t/messages/modules/*\nINTO  $UpStream ",
	})
	require.NoError(t, err)
	in := edge.Endpoint{Module: "b", Input: "in"}
	require.Equal(t, []edge.Endpoint{in, edge.Upstream}, routes.Endpoints(edge.Source{Module: "a", Output: "x"}))
	require.Equal(t, []edge.Endpoint{edge.Upstream}, routes.Endpoints(edge.Source{Module: "b"}))
	require.Empty(t, routes.Endpoints(edge.Source{}))

	routes, err = edge.ParseRoutes(nil)
	require.NoError(t, err)
	require.Equal(t, []edge.Endpoint{edge.Upstream}, routes.Endpoints(edge.Source{}))
	require.Equal(t, edge.DefaultRoute, routes[0].String())
}

func TestInvalidRoutesSayWhatIsWrong(t *testing.T) {
	const into = " INTO $upstream"
	for text, want := range map[string]string{
		"":                       "want FROM source INTO sink",
		"/messages/*":            "want FROM source INTO sink",
		"FROM /messages/* INTO ": "want FROM source INTO sink",
		"FROM /messages/* WHERE temperature > 20" + into:                    "conditions are not emulated",
		"FROM /messages/* WHERE NOT IS_DEFINED($connectionModuleId)" + into: "conditions are not emulated",
		"FROM /twinChangeNotifications" + into:                              "changes of twins",
		"FROM /messages/modules" + into:                                     "source",
		"FROM /messages/modules/" + into:                                    "source",
		"FROM /messages/modules/a" + into:                                   "source",
		"FROM /messages/modules/a/outputs" + into:                           "source",
		"FROM /messages/modules/a/outputs/" + into:                          "source",
		"FROM /messages/modules/a/inputs/x" + into:                          "source",
		"FROM messages/*" + into:                                            "source",
		"FROM /messages/* INTO upstream":                                    "sink",
		"FROM /messages/* INTO $upstream now":                               "sink",
		`FROM /messages/* INTO BrokeredEndpoint(/modules/b/inputs/x)`:       "sink",
		`FROM /messages/* INTO BrokeredEndpoint("")`:                        "endpoint",
		`FROM /messages/* INTO BrokeredEndpoint("/modules/b")`:              "endpoint",
		`FROM /messages/* INTO BrokeredEndpoint("/modules/b/inputs/x/y")`:   "endpoint",
		`FROM /messages/* INTO BrokeredEndpoint("/modules/b/inputs/x y")`:   "endpoint",
		`FROM /messages/* INTO BrokeredEndpoint("/modules/*/inputs/x")`:     "endpoint",
		strings.Repeat(" ", 4097):                                           "4097 bytes",
	} {
		_, err := edge.ParseRoute(text)
		require.ErrorContains(t, err, want, text)
		_, err = edge.ParseRoutes([]string{edge.DefaultRoute, text})
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseRoute(f *testing.F) {
	f.Add(edge.DefaultRoute)
	f.Add(`FROM /messages/modules/a/outputs/x INTO BrokeredEndpoint("/modules/b/inputs/y")`)
	f.Add("FROM /messages/modules/a/* WHERE x = 1 INTO $upstream")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := edge.ParseRoute(text)
		if err != nil {
			return
		}
		require.Equal(t, text, r.String())
		routes, err := edge.ParseRoutes([]string{text, " " + text + " "})
		require.NoError(t, err)
		for _, s := range []edge.Source{{}, {Module: "a"}, {Module: "a", Output: "x"}} {
			want := 0
			if r.Matches(s) {
				want = 1
			}
			require.Len(t, routes.Endpoints(s), want)
			for _, to := range routes.Endpoints(s) {
				require.Equal(t, to.Module == "", to.Input == "")
			}
		}
	})
}
