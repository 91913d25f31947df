package mqttfront_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// get requests the twin.
func (d *nextDevice) get(sections nextwire.Sections, notDesired, notReported uint64) (r nextwire.GetResponse) {
	d.t.Helper()
	id := d.request()
	d.say("twin", nextwire.TypeTwinGet, id, &nextwire.TwinGet{
		Sections: sections, IfNotMatchDesired: notDesired, IfNotMatchReported: notReported,
	})
	d.hear("twin", nextwire.TypeGetResponse, id, &r)
	return r
}

// report sends a patch of reported properties.
func (d *nextDevice) report(ifMatch uint64, payload string) (r nextwire.PatchResponse) {
	d.t.Helper()
	id := d.request()
	d.say("twin", nextwire.TypeReportedPatch, id, &nextwire.ReportedPatch{IfMatch: ifMatch, Payload: []byte(payload)})
	d.hear("twin", nextwire.TypePatchResponse, id, &r)
	return r
}

// patched reads a patch of desired properties.
func (d *nextDevice) patched() (p nextwire.DesiredPatch) {
	d.t.Helper()
	d.hear("twin", nextwire.TypeDesiredPatch, d.nonce, &p)
	return p
}

func TestGetsHaveFilters(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		_, err := h.PatchDesired("dev-1", `{"fan":43}`)
		require.NoError(t, err)
		d := loginNext(t, h, 1)
		desired, reported := []byte(`{"fan":43}`), []byte(`{}`)
		for _, c := range []struct {
			sections     nextwire.Sections
			notD, notR   uint64
			wantD, wantR []byte
		}{
			{nextwire.SectionBoth, 0, 0, desired, reported},
			{nextwire.SectionDesired, 0, 0, desired, nil},
			{nextwire.SectionReported, 0, 0, nil, reported},
			{nextwire.SectionBoth, 2, 1, nil, nil},
			{nextwire.SectionBoth, 1, 2, desired, reported},
			{0, 0, 0, nil, nil}, // no section: the versions alone
		} {
			want := nextwire.GetResponse{DesiredVersion: 2, ReportedVersion: 1, Desired: c.wantD, Reported: c.wantR}
			require.Equal(t, want, d.get(c.sections, c.notD, c.notR), "%+v", c)
		}
		require.Len(t, h.TwinLog("dev-1"), 6)
	})
}

func TestReportedPatchesHaveFiveResults(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		response := func(r nextwire.PatchResult, version uint64) nextwire.PatchResponse {
			return nextwire.PatchResponse{Result: r, Version: version}
		}
		require.Equal(t, response(nextwire.PatchOK, 2), d.report(1, `{"a":1,"b":{"c":2}}`))
		require.Equal(t, response(nextwire.PatchVersionMismatch, 2), d.report(99, `{"a":2}`))
		require.Equal(t, response(nextwire.PatchVersionMismatch, 2), d.report(1<<63, `{"a":2}`))
		require.Equal(t, response(nextwire.PatchOK, 3), d.report(0, `{"b":{"c":null}}`))
		twin, err := h.Twin("dev-1")
		require.NoError(t, err)
		require.JSONEq(t, `{"a":1,"b":{}}`, string(twin.Reported))
		for _, bad := range []string{``, `7`, `{"a":`, `{"$x":1}`, "\xff"} {
			require.Equal(t, response(nextwire.PatchPayloadInvalid, 3), d.report(0, bad), bad)
		}
		large := make([]string, 11) // a value may have 4 KB
		for i := range large {
			large[i] = fmt.Sprintf(`"k%d":"%s"`, i, strings.Repeat("x", 4000))
		}
		require.Equal(t, response(nextwire.PatchPayloadTooLarge, 3), d.report(0, "{"+strings.Join(large, ",")+"}"))
		for status, want := range map[int]nextwire.PatchResult{
			400: nextwire.PatchPayloadInvalid, 413: nextwire.PatchPayloadTooLarge, 429: nextwire.PatchInternalError,
			500: nextwire.PatchInternalError,
		} {
			h.Inject(fault.Fault{Kind: fault.RefuseTwin, Status: status, Operation: hubdata.TwinPatch})
			require.Equal(t, response(want, 3), d.report(0, `{"a":3}`), status)
		}
		h.Inject(fault.Fault{Kind: fault.StrictIfMatch})
		require.Equal(t, response(nextwire.PatchVersionMismatch, 3), d.report(0, `{"a":3}`))
	})
}

func TestChangesOfDesiredPropertiesFollowTheBirth(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		change := func(patch string) {
			t.Helper()
			_, err := h.PatchDesired("dev-1", patch)
			require.NoError(t, err)
		}
		d, _ := dialNext(t, h, 1, nil)
		change(`{"a":1}`) // before the subscription
		d.listen()
		d.say("twin", nextwire.TypeReportedPatch, d.request(), &nextwire.ReportedPatch{Payload: []byte(`{"a":1}`)})
		d.ping()
		require.Empty(t, h.TwinLog("dev-1"), "requests before the birth are ignored")
		change(`{"a":2}`) // before the birth
		require.Equal(t, uint64(3), d.born(nextwire.Birth{}).DesiredVersion)
		change(`{"a":3,"b":{"c":1,"d":2}}`)
		require.Equal(t, nextwire.DesiredPatch{Version: 4, Payload: []byte(`{"a":3,"b":{"c":1,"d":2}}`)}, d.patched())
		_, err := h.SetDesired("dev-1", `{"b":{"c":1,"e":3}}`)
		require.NoError(t, err)
		p := d.patched()
		require.Equal(t, uint64(5), p.Version)
		require.JSONEq(t, `{"a":null,"b":{"d":null,"e":3}}`, string(p.Payload))

		// A later birth replaces nonce and wishes.
		d.nonce = nextwire.ID{9}
		require.Equal(t, uint64(5), d.born(nextwire.Birth{DesiredVersion: 5, PushDesired: true}).DesiredVersion)
		change(`{"x":1}`)
		require.Equal(t, uint64(6), d.patched().Version)
	})
}

// The versions of a device that was registered anew begin anew.
func TestATwinCanBeReplaced(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		_, err := h.PatchDesired("dev-1", `{"a":1}`)
		require.NoError(t, err)
		d := loginNext(t, h, 1)
		require.NoError(t, h.RemoveDevice("dev-1"))
		require.Equal(t, byte(0x87), d.disconnected().ReasonCode)
		_, err = h.AddDevice("dev-1")
		require.NoError(t, err)
		again, ack := dialNext(t, h, 2, nil)
		require.False(t, ack.SessionPresent)
		again.listen()
		require.Equal(t, nextwire.BirthAck{DesiredVersion: 1, ReportedVersion: 1},
			again.born(nextwire.Birth{DesiredVersion: 2, ReportedVersion: 1, PushDesired: true, PushReported: true}))
		var push nextwire.TwinPush
		again.hear("twin", nextwire.TypeTwinPush, again.nonce, &push)
		require.Equal(t, nextwire.TwinPush{Desired: &nextwire.Section{Version: 1, Payload: []byte(`{}`)}}, push)
	})
}

// Messages that the hub does not understand are acknowledged and ignored.
func TestTheHubIgnoresWhatItDoesNotUnderstand(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		whole := nextwire.Append(nil, &nextwire.TwinGet{Sections: nextwire.SectionBoth})
		for name, c := range map[string]struct {
			feature, typ string
			id           []byte
			body         []byte
		}{
			"another version":        {"twin", "get:2", make([]byte, 16), whole},
			"no version":             {"twin", "get", make([]byte, 16), whole},
			"the type of an answer":  {"twin", nextwire.TypeGetResponse, make([]byte, 16), whole},
			"another feature's type": {"methods", nextwire.TypeTwinGet, make([]byte, 16), whole},
			"a short id":             {"twin", nextwire.TypeTwinGet, make([]byte, 15), whole},
			"no id":                  {"twin", nextwire.TypeTwinGet, nil, whole},
			"half a message":         {"twin", nextwire.TypeTwinGet, make([]byte, 16), []byte{0x10}},
			"an unknown section":     {"twin", nextwire.TypeTwinGet, make([]byte, 16), []byte{8, 4}},
			"a bad birth":            {"presence", nextwire.TypeBirth, make([]byte, 16), []byte{0}},
			"a bad patch":            {"twin", nextwire.TypeReportedPatch, make([]byte, 16), []byte{0x2b, 0}},
			"a bad answer":           {"methods", nextwire.TypeProbeAck, make([]byte, 16), []byte{0x0a}},
			"a bad result":           {"methods", nextwire.TypeResult, make([]byte, 16), []byte{0x0a}},
			"a bad abandon":          {"methods", nextwire.TypeAbandon, make([]byte, 16), []byte{0x0a}},
			"a birth to telemetry":   {"telemetry", nextwire.TypeBirth, make([]byte, 16), nil},
		} {
			pk := message(3, "ih/dev-1/srv/"+c.feature, string(c.body))
			pk.Properties.CorrelationData = c.id
			pk.Properties.User = []packets.UserProperty{{Key: "type", Val: c.typ}}
			d.send(pk)
			require.Zero(t, d.expect(packets.Puback).ReasonCode, name)
		}
		synctest.Wait()
		d.ping()
		require.Empty(t, h.Messages())
		require.Empty(t, h.TwinLog("dev-1"))
	})
}
