package mqtt

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

var someTime = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBagsAreEncodedAsTheHubWants(t *testing.T) {
	for _, c := range []struct {
		m    transport.Message
		want string
	}{
		{transport.Message{Body: []byte("x")}, ""},
		{transport.Message{ID: "m-1"}, "%24.mid=m-1"},
		{transport.Message{CorrelationID: "c/1"}, "%24.cid=c%2F1"},
		{
			transport.Message{ID: "m-1", ContentType: "application/json", ContentEncoding: "utf-8", Properties: []transport.Property{{Name: "level", Value: "high temp"}}},
			"%24.mid=m-1&%24.ct=application%2Fjson&%24.ce=utf-8&level=high%20temp",
		},
		{transport.Message{ContentType: "application/json;charset=utf-8"}, "%24.ct=application%2Fjson%3Bcharset%3Dutf-8"},
		{
			transport.Message{Created: someTime, Expires: someTime.Add(1500 * time.Millisecond)},
			"%24.ctime=2030-01-01T00%3A00%3A00.000Z&%24.exp=2030-01-01T00%3A00%3A01.500Z",
		},
		{transport.Message{Created: someTime.In(time.FixedZone("", 3600))}, "%24.ctime=2030-01-01T00%3A00%3A00.000Z"},
		{
			transport.Message{Properties: []transport.Property{{Name: "b", Value: "1"}, {Name: "a", Value: ""}, {Name: "b", Value: "2"}}},
			"b=1&a=&b=2",
		},
		{
			transport.Message{Properties: []transport.Property{{Name: "k /#+&=%?", Value: "€~.-_*'()!$"}}},
			"k%20%2F%23%2B%26%3D%25%3F=%E2%82%AC~.-_%2A%27%28%29%21%24",
		},
	} {
		require.Equal(t, c.want, string(appendBag(nil, &c.m)))
		require.Equal(t, c.want != "", hasBag(&c.m))
		if c.want != "" {
			var back transport.Message
			decodeBag(c.want, &back)
			c.m.Created, c.m.Body = c.m.Created.UTC(), nil
			require.Equal(t, c.m, back)
		}
	}
}

func TestBagsAreDecodedAsHubsSendThem(t *testing.T) {
	props := func(kv ...string) (out []transport.Property) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, transport.Property{Name: kv[i], Value: kv[i+1]})
		}
		return out
	}
	for bag, want := range map[string]transport.Message{
		"":                   {},
		"/":                  {},
		"&&":                 {},
		"=x":                 {},
		"color=blue/":        {Properties: props("color", "blue")},
		"null&empty=":        {Properties: props("null", "", "empty", "")},
		"a=b=c":              {Properties: props("a", "b=c")},
		"plus=a+b":           {Properties: props("plus", "a+b")},
		"bad=%zz&worse%=%4":  {Properties: props("bad", "%zz", "worse%", "%4")},
		"$.mid=raw&%24.cid=": {ID: "raw"},
		"%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound&%24.mid=c2d-7&%24.cid=op-3&iothub-ack=full&color=blue": {
			ID: "c2d-7", CorrelationID: "op-3", Properties: props("iothub-ack", "full", "color", "blue"),
		},
		"%24.exp=2030-01-01T00%3A00%3A00.0000000Z&%24.ctime=2030-01-01T01%3A00%3A00%2B01%3A00": {Expires: someTime, Created: someTime},
		"%24.exp=tomorrow": {},
		"%24.ct=text%2Fplain&%24.ce=utf-8&%24.uid=me": {ContentType: "text/plain", ContentEncoding: "utf-8", Properties: props("user-id", "me")},
		"%24.to=%2Fx&iothub-operation=d2c&$.schema=s&%24.new&%24.": {
			Properties: props("iothub-operation", "d2c", "iothub-message-schema", "s", "$.new", "", "$.", ""),
		},
	} {
		var got transport.Message
		decodeBag(bag, &got)
		require.Equal(t, want, got, bag)
	}
}

func FuzzBag(f *testing.F) {
	f.Add("%24.mid=m-1&level=high%20temp/")
	f.Add("%&=%4&&a==")
	f.Add("null&empty=&=&==x&%24.mid&%24.uid=&$.=&%24.exp=&iothub-ack=full/")
	f.Add("%24.to=%2Fdevices%2Fd&%24.exp=2030-01-01T00%3A00%3A00.0000000Z&a=b&a=c")
	f.Fuzz(func(t *testing.T, bag string) {
		var once, twice transport.Message
		decodeBag(bag, &once)
		// What was understood survives a round trip.
		decodeBag(string(appendBag(nil, &once)), &twice)
		once.Created, twice.Created = once.Created.Truncate(time.Millisecond), twice.Created.Truncate(time.Millisecond)
		once.Expires, twice.Expires = once.Expires.Truncate(time.Millisecond), twice.Expires.Truncate(time.Millisecond)
		if y := once.Created.Year(); y < 0 || y > 9999 || once.Expires.Year() > 9999 || once.Expires.Year() < 0 {
			return
		}
		require.Equal(t, once, twice)
	})
}

func TestTopicsNameTheIdentity(t *testing.T) {
	device := newTopics(&transport.Credentials{DeviceID: "d#+1"})
	require.Equal(t, topics{"devices/d#+1/messages/events/", "devices/d#+1/messages/devicebound/#", "devices/d#+1/messages/devicebound/"}, device)
	module := newTopics(&transport.Credentials{DeviceID: "d", ModuleID: "m"})
	require.Equal(t, "devices/d/modules/m/messages/events/", module.telemetry)
	require.Equal(t, "devices/d/modules/m/messages/devicebound/#", module.messages)
}

func TestWhatDoesNotFitFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.Send([]transport.Item{
			{Tag: 1, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}},
			{Tag: 2, Msg: &transport.Message{Properties: []transport.Property{{Name: "p", Value: strings.Repeat("#", 22_000)}}}}, // 66,000 encoded
			{Tag: 3, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize)}},
		})
		last := l.expect(typePublish)
		require.Len(t, last.payload(), transport.MaxMessageSize)
		l.puback(last.id())
		synctest.Wait()
		require.Len(t, r.sink.done, 3)
		for i, tag := range []uint16{1, 2} {
			require.Equal(t, tag, r.sink.done[i].tag)
			require.ErrorIs(t, r.sink.done[i].err, transport.TooLarge)
			require.Equal(t, transport.Operation, transport.Find(r.sink.done[i].err).Scope)
		}
		require.NoError(t, r.sink.done[2].err)
	})
}

// A message without properties costs no allocation beyond the library's.
func TestTheBareTopicIsNotAllocated(t *testing.T) {
	m := &transport.Message{ID: "m-1", Created: someTime, Properties: []transport.Property{{Name: "a b", Value: "c/d"}}}
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = appendBag(buf[:0], m) }))
}

func TestCloudToDeviceMessagesAreDecodedAndSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
		sub := l.expect(8)
		require.Equal(t, "\x00\x24devices/dev-1/messages/devicebound/#\x01", string(sub.body[2:]))
		l.send(typeSuback<<4, 3, sub.body[0], sub.body[1], 1)
		l.publish("devices/dev-1/messages/devicebound/%24.mid=one&a=1", 300, "first")
		l.publish("devices/dev-1/messages/devicebound/%24.mid=two", 0, "QoS 0")
		l.publish("devices/dev-1/messages/devicebound/%24.mid=three", 301, "third")
		l.publish("devices/dev-1/messages/devicebound/%24.mid=four", 302, "fourth")
		l.publish("devices/another/messages/devicebound/a=b", 303, "not ours")
		l.publish("$iothub/twin/res/200/?$rid=1", 0, "not asked for")
		synctest.Wait()
		require.Len(t, r.sink.replies, 1)
		require.NoError(t, r.sink.replies[0].Err)
		require.Len(t, r.sink.messages, 4)
		require.Equal(t, transport.Message{ID: "one", Body: []byte("first"), Properties: []transport.Property{{Name: "a", Value: "1"}}}, r.sink.messages[0])
		require.Equal(t, [][]byte{{1, 44}, nil, {1, 45}, {1, 46}}, r.sink.refs)

		for i, outcome := range []transport.Outcome{transport.Accept, transport.Accept, transport.Release, transport.Reject} {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[i], Outcome: outcome})
		}
		r.cancel()
		rest, _ := l.drain()
		require.Equal(t, []packet{
			{kind: typePuback, body: []byte{1, 44}}, {kind: typePuback, body: []byte{1, 46}}, {kind: typeDisconnect, body: []byte{}},
		}, rest)
	})
}
