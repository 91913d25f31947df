package nexthub

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
)

var (
	nonce  = nextwire.ID{0xaa, 15: 1}
	before = nextwire.ID{0xaa, 15: 2}
)

// twinAt is the twin of a connection whose birth-ack had these versions. The birth said held, and
// asked for a push.
func twinAt(desired, reported, held uint64) *twin {
	t := &twin{nonce: nonce, random: [11]byte{1, 2, 3}}
	t.begin(&nextwire.BirthAck{DesiredVersion: desired, ReportedVersion: reported}, held, true)
	return t
}

// incoming is a message of the service.
func incoming(typ string, correlation nextwire.ID, m nextwire.Message) *transport.Delivery {
	return &transport.Delivery{Ref: []byte{0}, Msg: envelope(typ, correlation, m, never)}
}

func section(v uint64, payload string) *nextwire.Section {
	return &nextwire.Section{Version: v, Payload: []byte(payload)}
}

func pushed(v uint64) *nextwire.TwinPush { return &nextwire.TwinPush{Desired: section(v, "{}")} }

func readOf(id uint32, held int64) *transport.Request {
	return &transport.Request{ID: id, Op: transport.OpTwinGet, Want: transport.FeatureDesired, Version: held}
}

// published requires that a request is sent as a message of this type, and returns its correlation.
func published[M nextwire.Message](t *testing.T, typ string, want M, m *transport.Message, reply *transport.Reply,
) nextwire.ID {
	t.Helper()
	require.Nil(t, reply)
	require.NotNil(t, m)
	require.Equal(t, typ, typeOf(m))
	require.Equal(t, nextwire.ContentType, m.ContentType)
	require.True(t, m.Expires.IsZero())
	require.Equal(t, nextwire.Append(nil, want), m.Body)
	correlation, ok := nextwire.ParseID(m.CorrelationID)
	require.True(t, ok)
	return correlation
}

func TestPatchesAndPushesAreDeliveredWithTheirVersion(t *testing.T) {
	for name, c := range map[string]struct {
		message *transport.Delivery
		want    string // the body
		version int64
		full    bool
	}{
		"patch": {incoming(nextwire.TypeDesiredPatch, nonce, &nextwire.DesiredPatch{Version: 3, Payload: []byte(`{"a":2}`)}),
			`{"a":2,"$version":3}`, 3, false},
		"empty patch": {incoming(nextwire.TypeDesiredPatch, nonce,
			&nextwire.DesiredPatch{Version: 3, Payload: []byte(" { } ")}),
			`{"$version":3}`, 3, false},
		"probe": {incoming(nextwire.TypeDesiredPatch, nonce, &nextwire.DesiredPatch{Version: 3}), "", 3, false},
		"push": {incoming(nextwire.TypeTwinPush, nonce, &nextwire.TwinPush{Desired: section(2, `{"a":1}`)}),
			`{"a":1,"$version":2}`, 2, true},
		"a patch that is not JSON": {incoming(nextwire.TypeDesiredPatch, nonce,
			&nextwire.DesiredPatch{Version: 3, Payload: []byte("x")}), "x", 3, false},
		"the largest version": {incoming(nextwire.TypeDesiredPatch, nonce, &nextwire.DesiredPatch{Version: math.MaxUint64}),
			"", math.MaxInt64, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.message
			r := twinAt(2, 1, 0).take(d)
			require.Equal(t, report{deliver: true, pushed: c.full}, r)
			require.Equal(t, transport.FeatureDesired, d.Kind)
			require.Equal(t, c.want, string(d.Msg.Body))
			require.Equal(t, c.version, d.Version)
			require.Equal(t, c.full, d.Full)
			require.Nil(t, d.Ref)
		})
	}
}

func TestMessagesForNobodyAreIgnored(t *testing.T) {
	patch := &nextwire.DesiredPatch{Version: 3, Payload: []byte(`{"a":2}`)}
	short := incoming(nextwire.TypeDesiredPatch, nonce, patch)
	short.Msg.CorrelationID = short.Msg.CorrelationID[:15]
	bad := incoming(nextwire.TypeDesiredPatch, nonce, patch)
	bad.Msg.Body = bad.Msg.Body[:5]
	untyped := incoming(nextwire.TypeDesiredPatch, nonce, patch)
	untyped.Msg.Properties = nil
	for name, d := range map[string]*transport.Delivery{
		"a patch of an earlier connection": incoming(nextwire.TypeDesiredPatch, before, patch),
		"a push of an earlier connection":  incoming(nextwire.TypeTwinPush, before, pushed(9)),
		"another version of the type":      incoming("desired-patch:2", nonce, patch),
		"no type":                          untyped,
		"a correlation of another length":  short,
		"a malformed patch":                bad,
		"an answer to nobody":              incoming(nextwire.TypeGetResponse, before, &nextwire.GetResponse{}),
		"an answer with the nonce":         incoming(nextwire.TypeGetResponse, nonce, &nextwire.GetResponse{}),
		"a push of nothing":                incoming(nextwire.TypeTwinPush, nonce, &nextwire.TwinPush{}),
	} {
		t.Run(name, func(t *testing.T) {
			tw := twinAt(2, 1, 0)
			require.Equal(t, report{}, tw.take(d))
			require.Equal(t, twinAt(2, 1, 0), tw)
		})
	}
}

func TestTheReadAtConnectNeedsNoMessage(t *testing.T) {
	t.Run("the client has the newest version", func(t *testing.T) {
		tw := twinAt(5, 1, 5)
		m, reply := tw.request(readOf(7, 5))
		require.Nil(t, m)
		require.Equal(t, &transport.Reply{Version: 5}, reply)
	})
	t.Run("the push comes after the read", func(t *testing.T) {
		tw := twinAt(5, 1, 4)
		m, reply := tw.request(readOf(7, 4))
		require.Nil(t, m)
		require.Nil(t, reply)
		r := tw.take(incoming(nextwire.TypeTwinPush, nonce, pushed(5)))
		require.Equal(t, report{deliver: true, pushed: true}, r)
		id, answer := tw.delivered()
		require.Equal(t, uint32(7), id)
		require.Equal(t, transport.Reply{Version: 5}, answer)
		r = tw.take(incoming(nextwire.TypeTwinPush, nonce, pushed(6)))
		require.Equal(t, report{deliver: true}, r) // one at will answers no read
	})
	t.Run("the push comes before the read", func(t *testing.T) {
		tw := twinAt(5, 1, 0)
		require.True(t, tw.take(incoming(nextwire.TypeTwinPush, nonce, pushed(5))).pushed)
		id, _ := tw.delivered()
		require.Zero(t, id)
		m, reply := tw.request(readOf(7, 0)) // made before
		require.Nil(t, m)
		require.Equal(t, &transport.Reply{Version: 5}, reply)
		m, _ = tw.request(readOf(8, 0)) // made afterwards, for another reason
		require.NotNil(t, m)
	})
	t.Run("the push is lost", func(t *testing.T) {
		tw := twinAt(5, 1, 4)
		tw.request(readOf(7, 4))
		m, reply := tw.request(readOf(8, 4))
		correlation := published(t, nextwire.TypeTwinGet,
			&nextwire.TwinGet{Sections: nextwire.SectionDesired, IfNotMatchDesired: 4}, m, reply)
		require.Equal(t, uint32(8), binary.BigEndian.Uint32(correlation[12:]))
		m, _ = tw.request(readOf(9, 4))
		require.NotNil(t, m) // no read waits any more
	})
	t.Run("the twin was replaced by one with a lower version", func(t *testing.T) {
		tw := twinAt(2, 1, 5)
		m, _ := tw.request(readOf(7, 5))
		require.Nil(t, m)
		require.True(t, tw.take(incoming(nextwire.TypeTwinPush, nonce, pushed(2))).pushed)
		_, reply := tw.delivered()
		require.Equal(t, transport.Reply{Version: 2}, reply)
	})
	t.Run("no push was requested", func(t *testing.T) {
		tw := &twin{nonce: nonce}
		tw.begin(&nextwire.BirthAck{DesiredVersion: 5, ReportedVersion: 1}, 0, false)
		m, _ := tw.request(readOf(7, 0))
		require.NotNil(t, m)
	})
}

// A read after a gap always asks the service, whatever it said before.
func TestAReadAfterAGapIsAMessage(t *testing.T) {
	tw := twinAt(5, 1, 5)
	tw.take(incoming(nextwire.TypeDesiredPatch, nonce, &nextwire.DesiredPatch{Version: 7, Payload: []byte("{}")}))
	m, reply := tw.request(readOf(7, 5))
	want := &nextwire.TwinGet{Sections: nextwire.SectionDesired, IfNotMatchDesired: 5}
	id := published(t, nextwire.TypeTwinGet, want, m, reply)
	r := tw.take(incoming(nextwire.TypeGetResponse, id, &nextwire.GetResponse{DesiredVersion: 7, ReportedVersion: 3,
		Desired: []byte(`{"a":1}`)}))
	require.Equal(t, uint32(7), r.id)
	require.Equal(t, &transport.Reply{Status: 200, Version: 7,
		Body: []byte(`{"desired":{"a":1,"$version":7},"reported":{"$version":3}}`)}, r.reply)

	tw.take(incoming(nextwire.TypeDesiredPatch, nonce, &nextwire.DesiredPatch{Version: 8})) // without payload
	m, reply = tw.request(readOf(8, 5))
	id = published(t, nextwire.TypeTwinGet, want, m, reply)
	r = tw.take(incoming(nextwire.TypeGetResponse, id, &nextwire.GetResponse{DesiredVersion: 5, ReportedVersion: 1}))
	require.Equal(t, &transport.Reply{Version: 5}, r.reply) // filtered
}

func TestAReadOfTheTwinReturnsTheDocumentOfAClassicHub(t *testing.T) {
	tw := twinAt(5, 1, 5)
	m, reply := tw.request(&transport.Request{ID: 1 << 30, Op: transport.OpTwinGet})
	id := published(t, nextwire.TypeTwinGet, &nextwire.TwinGet{Sections: nextwire.SectionBoth}, m, reply)
	r := tw.take(incoming(nextwire.TypeGetResponse, id, &nextwire.GetResponse{DesiredVersion: 2, ReportedVersion: 1,
		Desired: []byte(`{"fanSpeed":43}`), Reported: []byte("{}")}))
	require.Equal(t, uint32(1<<30), r.id)
	require.JSONEq(t, `{"desired":{"fanSpeed":43,"$version":2},"reported":{"$version":1}}`, string(r.reply.Body))
	r = tw.take(incoming(nextwire.TypeGetResponse, id, &nextwire.GetResponse{DesiredVersion: 2, ReportedVersion: 1}))
	require.ErrorIs(t, r.reply.Err, transport.Protocol) // the payloads were not filtered
}

func TestAPatchNamesTheVersionThatTheServiceHad(t *testing.T) {
	tw := twinAt(5, 8, 5)
	patch := &transport.Request{ID: 3, Op: transport.OpTwinPatch, Body: []byte(`{"a":1}`)}
	want := func(v uint64) *nextwire.ReportedPatch {
		return &nextwire.ReportedPatch{IfMatch: v, Payload: patch.Body}
	}
	m, reply := tw.request(patch)
	id := published(t, nextwire.TypeReportedPatch, want(8), m, reply)
	r := tw.take(incoming(nextwire.TypePatchResponse, id, &nextwire.PatchResponse{Result: nextwire.PatchOK, Version: 9}))
	require.Equal(t, report{id: 3, reply: &transport.Reply{Status: 204, Version: 9}}, r)

	m, reply = tw.request(patch) // somebody else patched meanwhile
	id = published(t, nextwire.TypeReportedPatch, want(9), m, reply)
	mismatch := &nextwire.PatchResponse{Result: nextwire.PatchVersionMismatch, Version: 12}
	for range maxTries - 1 {
		r = tw.take(incoming(nextwire.TypePatchResponse, id, mismatch))
		require.Nil(t, r.reply)
		before := id
		id = published(t, nextwire.TypeReportedPatch, want(12), r.send, nil)
		require.Equal(t, report{}, tw.take(incoming(nextwire.TypePatchResponse, before, mismatch))) // it came again
	}
	r = tw.take(incoming(nextwire.TypePatchResponse, id, mismatch)) // again and again
	require.Nil(t, r.send)
	require.ErrorIs(t, r.reply.Err, transport.Conflict)

	tw.take(incoming(nextwire.TypeTwinPush, nonce, &nextwire.TwinPush{Reported: section(20, "{}")}))
	m, reply = tw.request(patch)
	published(t, nextwire.TypeReportedPatch, want(20), m, reply)

	patch.Version = 4 // on a condition
	m, reply = tw.request(patch)
	id = published(t, nextwire.TypeReportedPatch, want(4), m, reply)
	r = tw.take(incoming(nextwire.TypePatchResponse, id, mismatch))
	require.ErrorIs(t, r.reply.Err, transport.Conflict)
	require.Equal(t, int64(12), r.reply.Version)
}

func TestResultsOfAPatchHaveTheirKind(t *testing.T) {
	for result, kind := range map[nextwire.PatchResult]transport.Kind{
		0: transport.Unknown, nextwire.PatchPayloadInvalid: transport.Invalid,
		nextwire.PatchPayloadTooLarge: transport.TooLarge, nextwire.PatchInternalError: transport.Unavailable,
		6: transport.Unknown, -1: transport.Unknown, math.MaxInt32: transport.Unknown,
	} {
		tw := twinAt(5, 8, 5)
		m, _ := tw.request(&transport.Request{ID: 3, Op: transport.OpTwinPatch, Body: []byte("{}")})
		id, _ := nextwire.ParseID(m.CorrelationID)
		r := tw.take(incoming(nextwire.TypePatchResponse, id, &nextwire.PatchResponse{Result: result, Version: 8}))
		require.Equal(t, uint32(3), r.id)
		e := transport.Find(r.reply.Err)
		require.Equal(t, kind, e.Kind, result)
		require.Equal(t, transport.ScopeOperation, e.Scope)
		require.Equal(t, transport.OpTwinPatch, e.Op)
		require.NotErrorIs(t, e, transport.ErrOutcomeUnknown)
	}
}

// A failure may come without a version: the next patch is not on no condition for that.
func TestAFailedPatchWithoutAVersionKeepsTheKnownOne(t *testing.T) {
	tw := twinAt(5, 8, 5)
	for range 2 {
		m, _ := tw.request(&transport.Request{ID: 3, Op: transport.OpTwinPatch, Body: []byte("{}")})
		var p nextwire.ReportedPatch
		require.NoError(t, nextwire.Decode(m.Body, &p))
		require.EqualValues(t, 8, p.IfMatch)
		id, _ := nextwire.ParseID(m.CorrelationID)
		tw.take(incoming(nextwire.TypePatchResponse, id, &nextwire.PatchResponse{Result: nextwire.PatchInternalError}))
	}
}

// A filtered answer to a read and the answer to a patch may have the same bytes.
func TestAnAnswerOfAnotherTypeFailsItsRequest(t *testing.T) {
	asked := func() (tw *twin, get, patch nextwire.ID) {
		tw = twinAt(5, 8, 5)
		m, _ := tw.request(&transport.Request{ID: 3, Op: transport.OpTwinGet})
		get, _ = nextwire.ParseID(m.CorrelationID)
		m, _ = tw.request(&transport.Request{ID: 4, Op: transport.OpTwinPatch, Body: []byte("{}")})
		patch, _ = nextwire.ParseID(m.CorrelationID)
		return tw, get, patch
	}
	_, getID, patchID := asked()
	answer := &nextwire.PatchResponse{Result: nextwire.PatchOK, Version: 9}
	unreadable := func(typ string, id nextwire.ID) *transport.Delivery {
		d := incoming(typ, id, answer)
		d.Msg.Body = []byte{0x08}
		return d
	}
	for _, c := range []struct {
		d  *transport.Delivery
		id uint32
	}{
		{incoming(nextwire.TypePatchResponse, getID, answer), 3},
		{incoming("get-response:2", getID, answer), 3},
		{unreadable(nextwire.TypeGetResponse, getID), 3},
		{incoming(nextwire.TypeGetResponse, patchID, answer), 4},
		{unreadable(nextwire.TypePatchResponse, patchID), 4},
	} {
		tw, _, _ := asked()
		r := tw.take(c.d)
		require.Equal(t, uint64(8), tw.reported)
		require.False(t, r.deliver)
		require.Equal(t, c.id, r.id)
		require.ErrorIs(t, r.reply.Err, transport.Protocol)
		require.ErrorIs(t, r.reply.Err, transport.ErrViolation) // worth a retry
		require.Equal(t, c.id == 4, transport.Find(r.reply.Err).Op == transport.OpTwinPatch)
		if c.id == 4 { // the service may have taken the patch
			require.ErrorIs(t, r.reply.Err, transport.ErrOutcomeUnknown)
		}
	}
}
