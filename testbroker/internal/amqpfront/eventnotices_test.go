package amqpfront_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// allNotices are the options of a hub with every source of events.
func allNotices() *testbroker.Options {
	return &testbroker.Options{Events: testbroker.EventOptions{Partitions: 1, Sources: []hubdata.EventSource{
		hubdata.EventSourceTwinChange, hubdata.EventSourceDeviceLifecycle, hubdata.EventSourceDeviceConnectionState,
	}}}
}

// A noticed is a notice as a back end reads it.
type noticed struct {
	source, operation, schema, device, module string
	body                                      map[string]any
}

// notices attaches a reader from the first event on, and returns a function that reads the next.
func notices(t *testing.T, h *testbroker.Hub, policy hubdata.Policy) func() noticed {
	t.Helper()
	r, err := loginService(t, h, policy).Session().NewReceiver(t.Context(), address("$Default", "0"), nil)
	require.NoError(t, err)
	return func() noticed {
		t.Helper()
		m, err := r.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		require.Equal(t, "application/json", *m.Properties.ContentType)
		require.Equal(t, "utf-8", *m.Properties.ContentEncoding)
		require.Equal(t, "hub", string(m.Properties.UserID))
		require.NotContains(t, m.Annotations, "iothub-connection-auth-method")
		require.NotContains(t, m.Annotations, "iothub-connection-auth-generation-id")
		text := func(key any) string {
			s, _ := m.Annotations[key].(string)
			return s
		}
		all := m.ApplicationProperties
		require.Equal(t, "hub", all["hubName"])
		require.Equal(t, text("iothub-connection-device-id"), all["deviceId"])
		at, err := time.Parse("2006-01-02T15:04:05.0000000Z", all["operationTimestamp"].(string))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
		n := noticed{source: text("iothub-message-source"), operation: all["opType"].(string),
			schema: all["iothub-message-schema"].(string), device: all["deviceId"].(string),
			module: text("iothub-connection-module-id")}
		require.NoError(t, json.Unmarshal(m.GetData(), &n.body))
		return n
	}
}

// is requires source, schema, operation and sender of a notice and returns its body.
func (n noticed) is(t *testing.T, source, schema, operation, device, module string) map[string]any {
	t.Helper()
	require.Equal(t, []string{source, schema, operation, device, module},
		[]string{n.source, n.schema, n.operation, n.device, n.module})
	return n.body
}

func TestNoticesOfTheRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, allNotices())
		next := notices(t, h, policy)
		const source, device, module = "deviceLifecycleEvents", "deviceLifecycleNotification", "moduleLifecycleNotification"
		next().is(t, source, device, "createDeviceIdentity", "dev-1", "")
		hubtest.AddModule(t, h, "dev-1", "mod-1")
		twin := next().is(t, source, module, "createModuleIdentity", "dev-1", "mod-1")
		require.Equal(t, "mod-1", twin["moduleId"])
		require.Equal(t, float64(2), twin["version"])
		require.NotContains(t, twin, "tags")
		hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		next()
		require.NoError(t, h.RemoveDevice("dev-1"))
		gone := map[string]map[string]any{}
		for range 2 {
			n := next()
			gone[n.operation] = n.body
		}
		require.Contains(t, gone, "deleteModuleIdentity")
		desired := gone["deleteDeviceIdentity"]["properties"].(map[string]any)["desired"].(map[string]any)
		require.Equal(t, float64(1), desired["a"])
	})
}

func TestNoticesOfTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := allNotices()
		o.Events.Sources = o.Events.Sources[:1]
		h, d, policy := newService(t, o)
		next := notices(t, h, policy)
		change := func(operation string) map[string]any {
			t.Helper()
			return next().is(t, "twinChangeEvents", "twinChangeNotification", operation, "dev-1", "")
		}
		hubtest.PatchDesired(t, h, "dev-1", `{"a":{"b":1,"c":null},"d":2}`)
		now := time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z")
		seen := func(version int) map[string]any {
			return map[string]any{"$lastUpdated": now, "$lastUpdatedVersion": float64(version)}
		}
		a := seen(2)
		a["b"] = seen(2)
		all := seen(2)
		all["a"], all["d"] = a, seen(2)
		require.Equal(t, map[string]any{"version": float64(3), "properties": map[string]any{"desired": map[string]any{
			"a": map[string]any{"b": float64(1), "c": nil}, "d": float64(2), "$version": float64(2), "$metadata": all,
		}}}, change("updateTwin"))

		require.NoError(t, h.PatchTags("dev-1", `{"site":"here"}`))
		require.Equal(t, map[string]any{"version": float64(4), "tags": map[string]any{"site": "here"}}, change("updateTwin"))

		to, from := hubtest.Pair(hubtest.LoginAMQP(t, h, d), "/devices/dev-1/twin", "twin:1")
		require.NoError(t, to.Send(t.Context(), &amqp.Message{
			Properties:  &amqp.MessageProperties{CorrelationID: "1"},
			Annotations: amqp.Annotations{"operation": "PATCH", "resource": "/properties/reported"},
			Data:        [][]byte{[]byte(`{"level":7}`)},
		}, nil))
		_, err := from.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"version": float64(5), "properties": map[string]any{"reported": map[string]any{
			"level": float64(7), "$version": float64(2),
			"$metadata": map[string]any{"$lastUpdated": now, "level": map[string]any{"$lastUpdated": now}},
		}}}, change("updateTwin"))

		_, err = h.SetDesired("dev-1", `{"e":3}`)
		require.NoError(t, err)
		twin := change("replaceTwin")
		require.Equal(t, "dev-1", twin["deviceId"])
		require.Equal(t, map[string]any{"site": "here"}, twin["tags"])
		require.Equal(t, float64(3), twin["properties"].(map[string]any)["desired"].(map[string]any)["e"])
	})
}

func TestNoticesOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := allNotices()
		o.Events.Sources = o.Events.Sources[2:]
		h, d, policy := newService(t, o)
		next := notices(t, h, policy)
		p := hubtest.LoginAMQP(t, h, d)
		const source, schema = "deviceConnectionStateEvents", "deviceConnectionStateNotification"
		before := next().is(t, source, schema, "deviceConnected", "dev-1", "")["sequenceNumber"].(string)
		require.Len(t, before, 64)
		require.NoError(t, p.Conn.Close())
		after := next().is(t, source, schema, "deviceDisconnected", "dev-1", "")["sequenceNumber"].(string)
		require.Greater(t, after, before)

		hubtest.OverHTTP(t, h, d).Send("over HTTP")
		hubtest.LoginAMQP(t, h, d)
		r, err := loginService(t, h, policy).Session().NewReceiver(t.Context(), address("$Default", "0"), nil)
		require.NoError(t, err)
		var operations []any
		for range 4 {
			m, err := r.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err)
			operations = append(operations, m.ApplicationProperties["opType"])
		}
		require.Equal(t, []any{"deviceConnected", "deviceDisconnected", nil, "deviceConnected"}, operations,
			"a request over HTTP is no connection")
	})
}

// The events of digital twins are the patches that make the new one of the old one.
func TestNoticesOfDigitalTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, policy := newService(t, &testbroker.Options{Events: testbroker.EventOptions{Partitions: 1,
			Sources: []hubdata.EventSource{hubdata.EventSourceDigitalTwinChange}}})
		r, err := loginService(t, h, policy).Session().NewReceiver(t.Context(), address("$Default", "0"), nil)
		require.NoError(t, err)
		next := func() (steps []string) {
			t.Helper()
			m, err := r.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err)
			require.Equal(t, "application/json-patch+json", *m.Properties.ContentType)
			require.Equal(t, "digitalTwinChangeEvents", m.Annotations["iothub-message-source"])
			require.Equal(t, "digitalTwinChangeNotification", m.ApplicationProperties["iothub-message-schema"])
			require.NotContains(t, m.ApplicationProperties, "opType")
			var all []struct {
				Op, Path string
				Value    json.RawMessage
			}
			require.NoError(t, json.Unmarshal(m.GetData(), &all), string(m.GetData()))
			for _, s := range all {
				steps = append(steps, s.Op+" "+s.Path+" "+string(s.Value))
			}
			return steps
		}
		at := time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z")
		hubtest.PatchDesired(t, h, d.ID, `{"target":20}`)
		require.Equal(t, []string{
			`add /$metadata/target {"desiredValue":20,"desiredVersion":2,"lastUpdateTime":"` + at + `"}`,
		}, next())
		require.NoError(t, h.PatchTags(d.ID, `{"site":"Ulm"}`)) // no part of a digital twin
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "$iothub/twin/res/#")
		report := func(id, patch string) {
			w.Send(hubtest.PublishBytes(0, 0, "$iothub/twin/PATCH/properties/reported/?$rid="+id, patch))
			w.Expect(3) // the answer
		}
		report("1", `{"inner":{"__t":"c","a/b":1},"target":{"value":20,"ac":200,"av":2}}`)
		require.Equal(t, []string{
			`replace /$metadata/target {"ackCode":200,"ackVersion":2,"desiredValue":20,"desiredVersion":2,"lastUpdateTime":"` +
				at + `"}`,
			`add /inner {"$metadata":{"a/b":{"lastUpdateTime":"` + at + `"}},"a/b":1}`,
			`add /target 20`,
		}, next())
		report("2", `{"inner":{"a/b":2},"target":null}`)
		require.Equal(t, []string{
			`replace /$metadata/target {"desiredValue":20,"desiredVersion":2,"lastUpdateTime":"` + at + `"}`,
			`replace /inner/a~1b 2`,
			`remove /target `,
		}, next())
	})
}
