package interop

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// sameJSON reports whether two texts are equal as JSON.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// versioned adds its version to a JSON object, as clients see it.
func versioned(object json.RawMessage, version int64) json.RawMessage {
	var all map[string]any
	if err := json.Unmarshal(object, &all); err != nil {
		panic(err) // the hub made it
	}
	all["$version"] = version
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return text
}

// member is a device or module, and the SDK client that acts for it.
type member struct {
	*sdk
	name, id string // of the client, and at the hub
	calls    int    // methods that were run
}

func (m *member) twin() hubdata.Twin {
	m.t.Helper()
	twin, err := m.hub.Twin(m.id)
	require.NoError(m.t, err)
	return twin
}

// reads has the SDK read the twin and compares it with the hub's.
func (m *member) reads() {
	m.t.Helper()
	m.tell(map[string]any{"do": "twin", "name": m.name})
	e := m.next("twin", m.name)
	require.Empty(m.t, e.Text)
	at := m.twin()
	require.JSONEq(m.t, fmt.Sprintf(`{"desired":%s,"reported":%s}`, versioned(at.Desired, at.DesiredVersion),
		versioned(at.Reported, at.ReportedVersion)), e.Payload)
}

// reports has the SDK change reported properties, and returns its result.
func (m *member) reports(patch string) string {
	m.t.Helper()
	m.tell(map[string]any{"do": "report", "name": m.name, "patch": json.RawMessage(patch)})
	return m.next("reported", m.name).Text
}

// hears waits until the SDK reports a change of desired properties.
func (m *member) hears(change string) {
	m.t.Helper()
	m.wait("change "+change, func(e event) bool { return e.is("desired", m.name) && sameJSON(e.Payload, change) })
}

// twinRound runs all operations on a twin whose changes are watched.
func (m *member) twinRound(round string) {
	m.t.Helper()
	version, err := m.hub.PatchDesired(m.id, fmt.Sprintf(`{"round":%q,"gone":{"a":1,"b":[2.5,false]}}`, round))
	require.NoError(m.t, err)
	m.hears(fmt.Sprintf(`{"round":%q,"gone":{"a":1,"b":[2.5,false]},"$version":%d}`, round, version))
	version, err = m.hub.PatchDesired(m.id, `{"gone":null,"größe":"\"<&>\u2028"}`)
	require.NoError(m.t, err)
	m.hears(fmt.Sprintf(`{"gone":null,"größe":"\"<&>\u2028","$version":%d}`, version))
	m.reads()
	version, err = m.hub.SetDesired(m.id, fmt.Sprintf(`{"only":%q}`, round))
	require.NoError(m.t, err)
	m.hears(fmt.Sprintf(`{"only":%q,"$version":%d}`, round, version))

	before := m.twin().ReportedVersion
	require.Empty(m.t, m.reports(fmt.Sprintf(`{"round":%q,"old":1,"fw":{"beta":true,"größe":"1 & 2/Ω"}}`, round)))
	require.JSONEq(m.t, fmt.Sprintf(`{"round":%q,"old":1,"fw":{"beta":true,"größe":"1 & 2/Ω"}}`, round),
		string(m.twin().Reported))
	require.Empty(m.t, m.reports(`{"old":null,"fw":{"beta":null}}`))
	require.JSONEq(m.t, fmt.Sprintf(`{"round":%q,"fw":{"größe":"1 & 2/Ω"}}`, round), string(m.twin().Reported))
	refusal := m.reports(`{"a b":1}`)
	require.NotEmpty(m.t, refusal)
	require.Equal(m.t, before+2, m.twin().ReportedVersion, "a bad patch changes nothing")
	m.reads()
	seen(m.t, "%s, %s: twin read; desired properties: 2 patches and a replacement heard; reported: 2 patches taken, "+
		"keys removed by null; a bad one: %s", m.id, round, refusal)
}

// brief is the wait for an answer that is discarded.
const brief = 250 * time.Millisecond

// call calls a method.
func (m *member) call(method, payload string) hubdata.MethodResult {
	m.t.Helper()
	got, err := m.hub.CallMethod(soon(m.t), m.id, hubdata.MethodCall{Name: method, Payload: []byte(payload),
		ConnectTimeout: waitLimit})
	require.NoError(m.t, err)
	return got
}

// carriesOut calls a method and checks that it ran once, with the given payload.
func (m *member) carriesOut(method, payload string, want hubdata.MethodResult) {
	m.t.Helper()
	require.Equal(m.t, want, m.call(method, payload))
	e := m.next("called", m.name)
	require.Equal(m.t, method, e.ID)
	require.Equal(m.t, payload, e.Payload)
	require.Empty(m.t, m.next("answered", m.name).Text)
	m.calls++
}

// methodRound runs all operations on methods with a handler.
func (m *member) methodRound(round string) {
	m.t.Helper()
	payload := fmt.Sprintf(`{"round":%q,"list":[1,2.5,null,"größe \"<&>\""]}`, round)
	m.carriesOut("reboot", payload, hubdata.MethodResult{Status: 201, Payload: fmt.Appendf(nil, `{"given":%s}`,
		payload)})
	m.carriesOut("empty", "null", hubdata.MethodResult{Status: 404, Payload: []byte("null")})
	bare := "carried out"
	if m.amqp {
		m.carriesOut("empty", "", hubdata.MethodResult{Status: 404, Payload: []byte("null")})
	} else { // over MQTT the SDK takes an empty body for invalid JSON and does not call the handler
		refusal := m.call("empty", "")
		require.Equal(m.t, 400, refusal.Status)
		bare = fmt.Sprintf("answered by the SDK itself, %d %s", refusal.Status, refusal.Payload)
	}
	_, err := m.hub.CallMethod(soon(m.t), m.id, hubdata.MethodCall{Name: "unknown", ResponseTimeout: brief,
		ConnectTimeout: waitLimit})
	var refusal *hubdata.ServiceError
	require.ErrorAs(m.t, err, &refusal)
	require.Equal(m.t, 504101, refusal.Code, "the SDK leaves it without an answer")
	require.Equal(m.t, m.calls, m.count("called", m.name), "each is carried out once")
	seen(m.t, "%s, %s: methods carried out once: payloads both ways; null both ways; without payload: %s; one without a "+
		"handler is not answered", m.id, round, bare)
}

// begin reads the twin and subscribes to changes and methods.
func (m *member) begin() {
	m.t.Helper()
	m.reads()
	m.tell(map[string]any{"do": "watch", "name": m.name})
	m.reads() // this request follows the subscription on the same connection, so the hub has processed that
	m.tell(map[string]any{"do": "method", "name": m.name, "method": "reboot", "status": 201})
	m.tell(map[string]any{"do": "method", "name": m.name, "method": "empty", "status": 404})
}

// cutInAnswer resets the connection when the answer of a method arrives. The method is not run
// again: see methodRound.
func (m *member) cutInAnswer() {
	m.t.Helper()
	cut := m.hub.Inject(fault.Fault{Kind: fault.DropOnMethodAnswer, Device: m.id})
	_, err := m.hub.CallMethod(soon(m.t), m.id, hubdata.MethodCall{Name: "reboot", Payload: []byte("1"),
		ResponseTimeout: brief, ConnectTimeout: waitLimit})
	require.Error(m.t, err)
	m.next("called", m.name)
	m.calls++
	require.NoError(m.t, cut.WaitFired(soon(m.t), 1))
	answered := m.next("answered", m.name).Text
	seen(m.t, "%s: a reset while a method is answered: %v; the SDK: %q", m.id, err, answered)
}

// comesBack has the SDK send, because over MQTT it may not reconnect before that, and waits until
// it watches again.
func (m *member) comesBack(round string, before uint64) {
	m.t.Helper()
	m.telemetry(m.name, m.id+" "+round+": ", 1, false)
	if m.amqp { // over MQTT the hub has kept the subscriptions
		require.NoError(m.t, m.hub.Wait(soon(m.t), func([]hubdata.Message) bool { return m.lastWatched() > before }))
	}
}

// lastWatched returns the number of the newest connection with a subscription to changes.
func (m *member) lastWatched() (connection uint64) {
	for _, r := range m.hub.TwinLog(m.id) {
		if r.Operation == hubdata.TwinSubscribe {
			connection = max(connection, r.Connection)
		}
	}
	return connection
}

func TestDeviceSDKTwinAndMethods(t *testing.T) {
	for _, way := range sdkTransports {
		if way.web {
			continue // HTTP has no twin and methods
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			s := startSDK(t, way, hubfixture.Open(t, nil))
			dev, err := s.hub.AddDevice(deviceID)
			require.NoError(t, err)
			mod, err := s.hub.AddModule(deviceID, "mod-1")
			require.NoError(t, err)
			s.open("device", dev, nil)
			s.open("module", mod, nil)
			members := []*member{{sdk: s, name: "device", id: deviceID}, {sdk: s, name: "module", id: deviceID + "/mod-1"}}
			for _, m := range members {
				m.begin()
				m.twinRound("first connection")
				m.methodRound("first connection")
			}
			for i, round := range []string{"after a reset", "after a reset while it answered"} {
				var before []uint64
				for _, m := range members {
					before = append(before, m.lastWatched())
				}
				if i == 0 {
					require.Equal(t, 2, s.hub.Drop(""))
				} else {
					for _, m := range members {
						m.cutInAnswer()
					}
				}
				for k, m := range members {
					m.comesBack(round, before[k])
					m.twinRound(round)
					m.methodRound(round)
				}
			}
			require.Zero(t, s.count("unhandled", "")+s.count("uncaught", ""))
		})
	}
}
