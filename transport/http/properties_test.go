package http_test

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// everything has each property that HTTPS has a place for.
func everything() *transport.Message {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC)
	return &transport.Message{
		ID: "id", CorrelationID: "corr", ContentType: "application/json", ContentEncoding: "utf-8",
		Component: "thermostat1", Created: at, Expires: at.Add(time.Hour), Body: []byte("{}"),
		System: &transport.SystemProperties{To: "/devices/dev-1/messages/events", UserID: "user", Schema: "schema-1",
			InterfaceID: transport.SecurityInterface, ConnectionDeviceID: "dev-9", ConnectionModuleID: "mod-9"},
		Properties: []transport.Property{
			{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"},
			{Name: "tracestate", Value: "vendor=1"},
		},
	}
}

// onTheWire are the properties of everything by their names over HTTPS, in the developer guide of
// IoT Hub.
var onTheWire = map[string]string{
	"iothub-messageid": "id", "iothub-correlationid": "corr", "iothub-contenttype": "application/json",
	"iothub-contentencoding": "utf-8", "dt-subject": "thermostat1",
	"iothub-creationtimeutc": "2031-02-03T04:05:06.789Z", "iothub-expiry": "2031-02-03T05:05:06.789Z",
	"iothub-to": "/devices/dev-1/messages/events", "iothub-userid": "user", "iothub-messageschema": "schema-1",
	"iothub-interface-id":         "urn:azureiot:Security:SecurityAgent:1",
	"iothub-connection-device-id": "dev-9", "iothub-connection-module-id": "mod-9",
	"iothub-app-traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
	"iothub-app-tracestate":  "vendor=1",
}

// A single message has its properties as headers.
func TestSystemPropertiesAsHeaders(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		r := h.start(t, h.options())
		r.send(0, everything())
		synctest.Wait()
		require.NoError(t, r.results()[0])
		got := map[string]string{}
		for name, values := range h.seen()[0].header {
			if name = strings.ToLower(name); strings.HasPrefix(name, "iothub-") || name == "dt-subject" {
				got[name] = strings.Join(values, "|")
			}
		}
		require.Equal(t, onTheWire, got)
	})
}

// The hub has the same properties of a single message and of one in a batch.
func TestSystemPropertiesArrive(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.New(t)
		tr := hubhttp.New(&hubhttp.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortHTTP)}})
		s, err := (&scripted{}).dial(t, tr, hub.CredsWith(t, ""))
		require.NoError(t, err)
		s.send(0, everything())
		synctest.Wait()
		s.send(1, everything(), everything())
		synctest.Wait()
		require.NoError(t, errors.Join(s.results()[0], s.results()[1], s.results()[2]))
		require.Equal(t, 3, hub.Len())
		for _, m := range hub.Messages() {
			system := map[string]string{}
			for _, p := range m.System {
				system[p.Name] = p.Value
			}
			require.Equal(t, map[string]string{
				"$.mid": "id", "$.cid": "corr", "$.ct": "application/json", "$.ce": "utf-8", "$.sub": "thermostat1",
				"$.ctime": "2031-02-03T04:05:06.789Z", "$.exp": "2031-02-03T05:05:06.789Z",
				"$.to": "/devices/dev-1/messages/events", "$.uid": "user", "$.schema": "schema-1",
				"$.ifid": "urn:azureiot:Security:SecurityAgent:1", "$.cdid": "dev-9", "$.cmid": "mod-9",
			}, system)
			require.Equal(t, []hubdata.Property{{Name: "traceparent",
				Value: "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}, {Name: "tracestate", Value: "vendor=1"}},
				m.Properties)
		}
	})
}

// A module has telemetry over HTTPS, on its own path, and nothing else. Through a gateway the
// request goes to the gateway's host, and the token is for the hub.
func TestModulesHaveTelemetryOnly(t *testing.T) {
	for _, gateway := range []string{"", "gateway.local"} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.module = "mod#1"
			o := h.options()
			creds := h.creds(goodKey)
			creds.ModuleID, creds.GatewayHost = h.module, gateway
			r, err := h.dial(t, hubhttp.New(o), creds)
			require.NoError(t, err)
			m := everything()
			m.System.To = ""
			r.send(0, m)
			synctest.Wait()
			r.send(1, m, m)
			synctest.Wait()
			require.NoError(t, errors.Join(r.results()[0], r.results()[1], r.results()[2]))
			require.Len(t, h.Received(), 3)
			for _, s := range h.requests {
				require.Equal(t, "/devices/dev-1/modules/mod%231/messages/events", s.path)
				require.Equal(t, http.MethodPost, s.method)
				require.Contains(t, s.header.Get("Authorization"),
					"sr="+url.QueryEscape(hostName+"/devices/dev-1/modules/mod#1")+"&")
				require.Equal(t, cmp.Or(gateway, hostName), s.host)
			}
			before := len(h.requests)
			for id, q := range []transport.Request{
				{Op: transport.OpSubscribe, Want: transport.FeatureMessages},
				{Op: transport.OpSubscribe, Want: transport.FeatureMethods},
				{Op: transport.OpSubscribe, Want: transport.FeatureDesired}, {Op: transport.OpTwinGet}, {Op: transport.OpTwinPatch},
			} {
				q.ID = uint32(id)
				r.Do(&q)
				require.ErrorIs(t, r.replies[q.ID], transport.Unsupported, "at once")
			}
			m.Output = "out"
			r.send(3, m)
			synctest.Wait()
			require.ErrorIs(t, r.results()[3], transport.Unsupported)
			require.Len(t, h.requests, before)
		})
	}
}
