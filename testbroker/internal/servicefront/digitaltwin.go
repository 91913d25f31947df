package servicefront

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var digitalTwinRoutes = slices.Concat(serviceRoutes(fault.RouteTwin, []serviceRow{
	{"GET digitaltwins/{device}", hubdata.RightServiceConnect, getDigitalTwin},
	{"PATCH digitaltwins/{device}", hubdata.RightServiceConnect, patchDigitalTwin},
}), serviceRoutes(fault.RouteMethod, []serviceRow{
	{"POST digitaltwins/{device}/commands/{command}", hubdata.RightServiceConnect, postCommand},
	{"POST digitaltwins/{device}/components/{component}/commands/{command}", hubdata.RightServiceConnect, postCommand},
}))

func getDigitalTwin(q *web.Request) (web.Answer, error) {
	t, err := q.Hub.TwinState(q.ID)
	if err != nil {
		return web.Answer{}, err
	}
	v := t.View()
	return web.AnswerJSON(document.DigitalTwin(q.ID.Device, v), v.Etag), nil
}

// patchDigitalTwin changes desired properties by a JSON patch.
func patchDigitalTwin(q *web.Request) (web.Answer, error) {
	t, err := q.Hub.TwinState(q.ID)
	if err != nil {
		return web.Answer{}, err
	}
	var all []patchStep
	if err := q.ReadArray(&all); err != nil {
		return web.Answer{}, err
	}
	settings, bad := patchSettings(all, t.View().Desired.Tree)
	if bad != nil {
		return web.Answer{}, bad
	}
	etag, _ := ifMatch(q)
	if err := backend.Of(q.Hub).WriteSettings(q.ID, settings, etag); err != nil {
		return web.Answer{}, err
	}
	header := http.Header{"Location": {"https://" + q.Hub.Host + q.Path()}}
	header.Set("ETag", `"`+t.View().Etag+`"`)
	return web.Answer{Status: http.StatusAccepted, Header: header}, nil
}

func postCommand(q *web.Request) (web.Answer, error) {
	body, bad := q.Read(hubdata.MaxMethodPayload)
	if bad != nil {
		return web.Answer{}, bad
	}
	d := methodDocument{MethodName: q.Vars["command"], Payload: body}
	if c := q.Vars["component"]; c != "" {
		d.MethodName = c + "*" + d.MethodName
	}
	for name, seconds := range map[string]**int{
		"connectTimeoutInSeconds": &d.ConnectTimeoutInSeconds, "responseTimeoutInSeconds": &d.ResponseTimeoutInSeconds,
	} {
		text := q.Query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return web.Answer{}, web.Errorf(hub.CodeArgumentInvalid, "%s %.40q, want a number of seconds", name, text)
		}
		*seconds = &n
	}
	call, err := d.call()
	if err != nil {
		return web.Answer{}, err
	}
	result, err := q.Hub.InvokeMethod(q.Context(), q.ID, call)
	a := web.AnswerJSON(payloadOf(result), "")
	a.Header.Set("x-ms-command-statuscode", strconv.Itoa(result.Status))
	return a, err
}
