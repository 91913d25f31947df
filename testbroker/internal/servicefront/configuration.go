package servicefront

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/query"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var configurationRoutes = serviceRoutes(fault.RouteRegistry, []serviceRow{
	{"GET configurations", readers, listConfigurations},
	{"GET configurations/{configuration}", readers, getConfiguration},
	{"PUT configurations/{configuration}", hubdata.RightRegistryWrite, withBody(putConfiguration)},
	{"DELETE configurations/{configuration}", hubdata.RightRegistryWrite, deleteConfiguration},
	{"POST configurations/testQueries", readers, withBody(testQueries)},
	{"POST devices/{device}/applyConfigurationContent", hubdata.RightRegistryWrite, withBody(applyContent)},
})

// The limits of a configuration.
const (
	maxMetrics = 5
	maxLabels  = 10
)

// A configurationDocument is a configuration in the form that back ends send and receive.
type configurationDocument struct {
	ID                 string            `json:"id"`
	SchemaVersion      string            `json:"schemaVersion"`
	Labels             map[string]string `json:"labels"`
	Content            document.Tree     `json:"content"`
	TargetCondition    string            `json:"targetCondition"`
	CreatedTimeUTC     json.RawMessage   `json:"createdTimeUtc,omitempty"` // written by the hub only
	LastUpdatedTimeUTC json.RawMessage   `json:"lastUpdatedTimeUtc,omitempty"`
	Priority           int               `json:"priority"`
	SystemMetrics      metrics           `json:"systemMetrics"` // written by the hub only
	Metrics            metrics           `json:"metrics"`
	ETag               string            `json:"etag,omitempty"`
}

// metrics are queries by name, and the numbers of their rows.
type metrics struct {
	Results map[string]int    `json:"results"`
	Queries map[string]string `json:"queries"`
}

func (d *configurationDocument) read(h *hub.Hub) (c backend.Configuration, err error) {
	bad := func(code int, format string, args ...any) (backend.Configuration, error) {
		return backend.Configuration{}, h.ServiceError(code, format, args...)
	}
	if err := identity.CheckID("configuration", d.ID); err != nil {
		return bad(hub.CodeArgumentInvalid, "%v", err)
	}
	if len(d.Labels) > maxLabels {
		return bad(hub.CodeArgumentInvalid, "%d labels, at most %d are allowed", len(d.Labels), maxLabels)
	}
	if d.Priority < 0 {
		return bad(hub.CodeArgumentInvalid, "priority %d, want 0 or more", d.Priority)
	}
	c = backend.Configuration{ID: d.ID, SchemaVersion: cmp.Or(d.SchemaVersion, "1.0"), Labels: d.Labels, Raw: d.Content,
		TargetCondition: d.TargetCondition, Priority: d.Priority, Metrics: d.Metrics.Queries}
	if c.Content, err = backend.ParseContent(d.Content); err != nil {
		return bad(backend.CodeConfigurationContent, "content: %v", err)
	}
	c.Accepts = func(document.Tree) bool { return false } // without a condition there is no target
	if d.TargetCondition != "" {
		target, err := query.ParseCondition(d.TargetCondition)
		if err != nil {
			return bad(backend.CodeConfigurationCondition, "targetCondition: %v", err)
		}
		c.Accepts, c.Modules = target.Accepts, target.From() == query.Modules
		if target.From() == query.Jobs {
			return bad(backend.CodeConfigurationCondition, "targetCondition: configurations are for devices and modules")
		}
	}
	if c.Content.Module != nil && !c.Modules || c.Modules && (c.Content.Device != nil || c.Content.Modules != nil) {
		return bad(backend.CodeConfigurationCondition,
			"moduleContent goes with a targetCondition that begins with FROM devices.modules, and only with that")
	}
	if len(c.Metrics) > maxMetrics {
		return bad(backend.CodeConfigurationMetrics, "%d metrics, at most %d are allowed", len(c.Metrics), maxMetrics)
	}
	for name, text := range c.Metrics {
		if err := checkMetric(text); err != nil {
			return bad(backend.CodeConfigurationMetrics, "metric %.40q: %v", name, err)
		}
	}
	return c, nil
}

func checkMetric(text string) error {
	_, err := query.Parse(text)
	return err
}

// configurationOf returns the document of a configuration, with the present results of its metrics.
func configurationOf(h *hub.Hub, c *backend.Configuration) configurationDocument {
	when := func(text string) json.RawMessage { return json.RawMessage(strconv.Quote(text)) }
	d := configurationDocument{ID: c.ID, SchemaVersion: c.SchemaVersion, Labels: c.Labels, Content: c.Raw,
		TargetCondition: c.TargetCondition, Priority: c.Priority, ETag: c.ETag(),
		CreatedTimeUTC:     when(document.TimeText(c.Created)),
		LastUpdatedTimeUTC: when(document.TimeText(c.Updated)),
		SystemMetrics:      measured(h, systemMetrics(c)), Metrics: measured(h, c.Metrics)}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	if d.Content == nil {
		d.Content = document.Tree{}
	}
	return d
}

// systemMetrics returns the queries of the metrics that each configuration has.
func systemMetrics(c *backend.Configuration) map[string]string {
	from, id := query.Devices, "configurations.[["+c.ID+"]].status"
	if c.Modules {
		from = query.Modules
	}
	name := "deviceId"
	if c.Modules {
		name = "deviceId, moduleId"
	}
	all := "SELECT " + name + " FROM " + string(from) + " WHERE is_defined(" + id + ")"
	queries := map[string]string{
		"targetedCount": all,
		"appliedCount":  all + " AND " + id + " = '" + backend.ConfigurationApplied + "'",
	}
	if c.Content.Modules != nil {
		agent := "SELECT deviceId FROM devices.modules WHERE moduleId = '$edgeAgent' AND " + id +
			" = '" + backend.ConfigurationApplied +
			"' AND properties.desired.$version = properties.reported.lastDesiredVersion" +
			" AND properties.reported.lastDesiredStatus.code "
		queries["reportedSuccessfulCount"] = agent + "= 200"
		queries["reportedFailedCount"] = agent + "!= 200"
	}
	return queries
}

// measured runs the queries of metrics.
func measured(h *hub.Hub, queries map[string]string) metrics {
	m := metrics{Results: make(map[string]int), Queries: make(map[string]string)}
	for name, text := range queries {
		m.Queries[name] = text
		if asked, err := query.Parse(text); err == nil {
			m.Results[name] = countRows(h, asked)
		}
	}
	return m
}

// countRows returns the number of rows of a query. It reads all of them at once: a page of groups
// needs all documents.
func countRows(h *hub.Hub, asked *query.Query) int {
	rows, _ := rowsFrom(h, asked, cursor{}, maxRows)
	return len(rows)
}

// maxRows bounds the rows that a metric counts.
const maxRows = 100_000

func getConfiguration(q *web.Request) (web.Answer, error) {
	c, err := backend.Of(q.Hub).Configuration(q.Vars["configuration"])
	if err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(configurationOf(q.Hub, c), c.ETag()), nil
}

func listConfigurations(q *web.Request) (web.Answer, error) {
	most, err := topOf(q)
	if err != nil {
		return web.Answer{}, err
	}
	all := []configurationDocument{}
	for _, c := range backend.Of(q.Hub).Configurations() {
		if len(all) == most {
			break
		}
		all = append(all, configurationOf(q.Hub, c))
	}
	return web.AnswerJSON(all, ""), nil
}

// putConfiguration creates a configuration, or with If-Match updates one. The status is 200 for
// both: some clients take 201 for an error.
func putConfiguration(q *web.Request, d *configurationDocument) (web.Answer, error) {
	h := q.Hub
	if d.ID = cmp.Or(d.ID, q.Vars["configuration"]); d.ID != q.Vars["configuration"] {
		return web.Answer{}, h.ServiceError(hub.CodeArgumentInvalid,
			"the body is about configuration %.128s, the path about %s", d.ID, q.Vars["configuration"])
	}
	c, err := d.read(h)
	if err != nil {
		return web.Answer{}, err
	}
	etag, _ := ifMatch(q)
	put, err := backend.Of(h).PutConfiguration(c, etag)
	if err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(configurationOf(h, put), put.ETag()), nil
}

func deleteConfiguration(q *web.Request) (web.Answer, error) {
	etag, ok := ifMatch(q)
	if !ok {
		etag = "*"
	}
	return web.Answer{Status: http.StatusNoContent}, backend.Of(q.Hub).RemoveConfiguration(q.Vars["configuration"], etag)
}

// testQueries checks a condition and the queries of metrics without a configuration.
func testQueries(q *web.Request, asked *struct {
	TargetCondition     string            `json:"targetCondition"`
	CustomMetricQueries map[string]string `json:"customMetricQueries"`
}) (web.Answer, error) {
	answer := struct {
		TargetConditionError    string            `json:"targetConditionError"`
		CustomMetricQueryErrors map[string]string `json:"customMetricQueryErrors"`
	}{CustomMetricQueryErrors: make(map[string]string)}
	if asked.TargetCondition != "" {
		if _, err := query.ParseCondition(asked.TargetCondition); err != nil {
			answer.TargetConditionError = err.Error()
		}
	}
	for name, text := range asked.CustomMetricQueries {
		if err := checkMetric(text); err != nil {
			answer.CustomMetricQueryErrors[name] = err.Error()
		}
	}
	return web.AnswerJSON(answer, ""), nil
}

// applyContent writes a content into a device at once.
func applyContent(q *web.Request, raw *document.Tree) (web.Answer, error) {
	content, err := backend.ParseContent(*raw)
	if err != nil {
		return web.Answer{}, q.Hub.ServiceError(backend.CodeConfigurationContent, "%v", err)
	}
	if !slices.ContainsFunc(contents, func(name string) bool { return (*raw)[name] != nil }) {
		return web.Answer{}, q.Hub.ServiceError(backend.CodeConfigurationContent, "no content; set one of %q", contents)
	}
	return web.Answer{Status: http.StatusNoContent}, backend.Of(q.Hub).ApplyContent(q.ID.Device, content)
}

// contents are the members of a content for a device.
var contents = []string{"deviceContent", "modulesContent"}
