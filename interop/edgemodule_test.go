package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// TestModuleSDK has the official SDK as a module and as a leaf device of one edge site, with our
// modules beside it.
func TestModuleSDK(t *testing.T) {
	for _, way := range sdkTransports {
		if way.web {
			continue // HTTP has no modules
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			e := newEdgeSite(t, way)
			e.tell(map[string]any{"do": "inputs", "name": "module"})
			e.tell(map[string]any{"do": "listen", "name": "leaf"})
			e.module.begin()
			e.leaf.begin()
			e.everything("first")
			e.restart()
			e.offline()
			e.everything("afterwards")
			require.Zero(t, e.count("unhandled", "")+e.count("uncaught", ""))
			require.Empty(t, e.hub.Conflicts())
		})
	}
}

// everything runs all operations of the module and of the leaf device.
func (e *edgeSite) everything(round string) {
	e.t.Helper()
	for _, g := range e.ours {
		e.nodeToOurs(g, round)
		e.oursToNode(g, round)
	}
	e.settled()
	for _, m := range []*member{e.module, e.leaf} {
		m.twinRound(round)
		m.methodRound(round)
	}
	e.calls(round)
	e.all("leaf", leafID, round+" of the leaf", true)
}

// expiry is in whole milliseconds, as all clients send it.
var expiry = time.Date(2099, 12, 31, 23, 59, 58, 123e6, time.UTC)

// nodeToOurs sends a message with everything the official SDK can set to an output, which a route
// takes to our module and another one to the hub.
func (e *edgeSite) nodeToOurs(g *goModule, round string) {
	e.t.Helper()
	id := round + " to " + g.name
	var expires any = expiry // the SDK makes a Date of it
	if e.amqp {
		expires = expiry.UnixMilli() // over AMQP the SDK cannot send a Date
	}
	e.tell(map[string]any{"do": "output", "name": "module", "output": "to-" + g.name, "messages": []map[string]any{{
		"payload": `{"größe":1}`, "id": id, "correlation": "c/ &=", "contentType": "application/json",
		"contentEncoding": "utf-8", "user": "us/er 1", "to": "/to/some one", "expiry": expires, "security": true,
		"component": "thermostat1", "properties": map[string]string{"größe": "1 & 2 = 3/Ω", "empty": ""},
	}}})
	require.Empty(e.t, e.next("sent", "module").Text)
	system := &transport.SystemProperties{To: "/to/some one", UserID: "us/er 1",
		InterfaceID: transport.SecurityInterface, ConnectionDeviceID: edgeID, ConnectionModuleID: nodeModule}
	if e.amqp { // the SDK sends no user id, and the address of its link in place of to
		system.To, system.UserID = "/devices/edge-1/modules/node/messages/events", ""
	}
	got := g.waitFor(e.t, id, 1)
	require.Len(e.t, got, 1)
	m := got[0]
	m.Properties = slices.DeleteFunc(m.Properties, func(p transport.Property) bool {
		return p.Name == "iothub-enqueuedtime" // the gateway adds it over AMQP
	})
	slices.SortFunc(m.Properties, func(a, b transport.Property) int { return len(a.Name) - len(b.Name) })
	require.Equal(e.t, transport.Message{
		ID: id, CorrelationID: "c/ &=", ContentType: "application/json", ContentEncoding: "utf-8",
		Component: "thermostat1", Created: m.Created, Expires: expiry, Input: "of-node", System: system,
		Properties: []transport.Property{{Name: "empty"}, {Name: "größe", Value: "1 & 2 = 3/Ω"}},
		Body:       []byte(`{"größe":1}`),
	}, m)

	e.arrives(id, 1)
	at := slices.IndexFunc(e.hub.Messages(), func(m hubdata.Message) bool { return m.MessageID == id })
	up := e.hub.Messages()[at]
	require.Equal(e.t, []string{edgeID, nodeModule, "to-" + g.name, system.To, system.UserID, system.InterfaceID},
		[]string{up.DeviceID, up.ModuleID, up.Output, up.To, up.UserID, up.InterfaceID})
	sent, err := time.Parse(time.RFC3339, up.Expiry)
	require.NoError(e.t, err)
	require.True(e.t, expiry.Equal(sent), up.Expiry)
}

// oursToNode sends a message with everything our module can set to its output, which a route takes
// to the official SDK.
func (e *edgeSite) oursToNode(g *goModule, round string) {
	e.t.Helper()
	id := round + " of " + g.name
	created := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	require.NoError(e.t, g.client.Send(soon(e.t), &transport.Message{
		ID: id, CorrelationID: "c/ &=", ContentType: "application/json", ContentEncoding: "utf-8",
		Component: "thermostat1", Created: created, Expires: expiry, Output: "to-node",
		System: &transport.SystemProperties{To: "/to/some one", UserID: "us/er 1", Schema: "schema 1",
			InterfaceID: transport.SecurityInterface, DiagnosticID: "d 1", DiagnosticContext: "x=1"},
		Properties: []transport.Property{{Name: "größe", Value: "1 & 2 = 3/Ω"}, {Name: "n", Value: "100 %"}},
		Body:       []byte(`{"größe":2}`),
	}))
	got := e.wait("input "+id, func(v event) bool { return v.is("input", "module") && v.ID == id })
	require.Equal(e.t, event{
		On: "input", Name: "module", Input: "of-" + g.name, ID: id, Payload: `{"größe":2}`, Correlation: "c/ &=",
		ContentType: "application/json", ContentEncoding: "utf-8", To: "/to/some one", User: "us/er 1",
		Expiry:     expiry.Format("2006-01-02T15:04:05.000Z"),
		Properties: got.Properties, Annotations: got.Annotations,
	}, got)
	properties := map[string]string{
		"größe": "1 & 2 = 3/Ω", "n": "100 %", "$.ctime": "2026-01-02T03:04:05.6780000Z", "$.schema": "schema 1",
		"$.sub": "thermostat1", "$.ifid": transport.SecurityInterface, "$.diagid": "d 1", "$.diagctx": "x=1",
		"$.cdid": edgeID, "$.cmid": g.name,
	}
	annotations := map[string]string{}
	if e.amqp {
		properties = map[string]string{"größe": "1 & 2 = 3/Ω", "n": "100 %",
			"iothub-creation-time-utc": "2026-01-02T03:04:05.6780000Z", "iothub-message-schema": "schema 1"}
		annotations = map[string]string{
			"dt-subject": "thermostat1", "iothub-interface-id": transport.SecurityInterface, "Diagnostic-Id": "d 1",
			"Correlation-Context": "x=1", "iothub-connection-device-id": edgeID, "iothub-connection-module-id": g.name,
			"x-opt-input-name": "of-" + g.name,
		}
		for _, name := range []string{"iothub-deliverycount", "iothub-enqueuedtime", "x-opt-lock-token",
			"x-opt-sequence-number"} {
			require.Contains(e.t, got.Annotations, name)
			delete(got.Annotations, name)
		}
	}
	require.Equal(e.t, properties, got.Properties)
	require.Equal(e.t, annotations, got.Annotations)
	require.Empty(e.t, e.wait("completion of "+id, func(v event) bool {
		return v.is("completed", "module") && v.ID == id
	}).Text)
	e.arrives(id, 1)
}

// calls calls methods between modules, and of the leaf device.
func (e *edgeSite) calls(round string) {
	e.t.Helper()
	payload := fmt.Sprintf(`{"round":%q,"list":[1,2.5,null,"größe"]}`, round)
	for _, g := range e.ours {
		for _, m := range []*member{e.module, e.leaf} {
			target := edge.Target{DeviceID: leafID}
			if m == e.module {
				target = edge.Target{DeviceID: edgeID, ModuleID: nodeModule}
			}
			got, err := g.invoker.Invoke(soon(e.t), target, edge.Method{Name: "reboot", Payload: []byte(payload),
				ConnectTimeout: waitLimit})
			require.NoError(e.t, err)
			require.Equal(e.t, 201, got.Status)
			require.JSONEq(e.t, fmt.Sprintf(`{"given":%s}`, payload), string(got.Payload))
			called := m.next("called", m.name)
			require.JSONEq(e.t, payload, called.Payload)
			m.calls++
		}
		e.tell(map[string]any{"do": "invoke", "name": "module", "device": edgeID, "module": g.name,
			"params": map[string]any{"methodName": "echo", "payload": map[string]any{"größe": round},
				"responseTimeoutInSeconds": 20, "connectTimeoutInSeconds": 20}})
		answer := e.next("invoked", "module")
		require.Empty(e.t, answer.Text)
		require.Equal(e.t, 202, answer.Code)
		require.JSONEq(e.t, fmt.Sprintf(`{"module":%q,"given":{"größe":%q}}`, g.name, round), answer.Payload)
	}
	e.tell(map[string]any{"do": "invoke", "name": "module", "device": leafID,
		"params": map[string]any{"methodName": "reboot", "payload": 1, "responseTimeoutInSeconds": 20,
			"connectTimeoutInSeconds": 20}})
	answer := e.next("invoked", "module")
	require.Equal(e.t, event{On: "invoked", Name: "module", Code: 201, Payload: `{"given":1}`}, answer)
	e.leaf.next("called", "leaf")
	e.leaf.calls++
}
