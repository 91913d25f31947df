package dialect

import (
	"testing"
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
		{transport.Message{Component: "thermostat1"}, "%24.sub=thermostat1"},
		{
			transport.Message{ContentEncoding: "utf-8", Component: "a b/+#", Created: someTime,
				Properties: []transport.Property{{Name: "sub", Value: "x"}}},
			"%24.ce=utf-8&%24.sub=a%20b%2F%2B%23&%24.ctime=2030-01-01T00%3A00%3A00.000Z&sub=x",
		},
		{
			transport.Message{ID: "m-1", ContentType: "application/json", ContentEncoding: "utf-8",
				Properties: []transport.Property{{Name: "level", Value: "high temp"}}},
			"%24.mid=m-1&%24.ct=application%2Fjson&%24.ce=utf-8&level=high%20temp",
		},
		{transport.Message{ContentType: "application/json;charset=utf-8"}, "%24.ct=application%2Fjson%3Bcharset%3Dutf-8"},
		{
			transport.Message{Created: someTime, Expires: someTime.Add(1500 * time.Millisecond)},
			"%24.ctime=2030-01-01T00%3A00%3A00.000Z&%24.exp=2030-01-01T00%3A00%3A01.500Z",
		},
		{transport.Message{Created: someTime.In(time.FixedZone("", 3600))}, "%24.ctime=2030-01-01T00%3A00%3A00.000Z"},
		{
			transport.Message{Properties: []transport.Property{{Name: "b", Value: "1"}, {Name: "a", Value: ""},
				{Name: "b", Value: "2"}}},
			"b=1&a=&b=2",
		},
		{
			transport.Message{Properties: []transport.Property{{Name: "k /#+&=%?", Value: "€~.-_*'()!$"}}},
			"k%20%2F%23%2B%26%3D%25%3F=%E2%82%AC~.-_%2A%27%28%29%21%24",
		},
	} {
		require.Equal(t, c.want, string(appendBag(nil, &c.m)))
		require.Equal(t, len(c.want), bagSize(&c.m))
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
		"%24.exp=2030-01-01T00%3A00%3A00.0000000Z&%24.ctime=2030-01-01T01%3A00%3A00%2B01%3A00": {Expires: someTime,
			Created: someTime},
		"%24.exp=tomorrow":      {},
		"$.sub=thermostat1&a=b": {Component: "thermostat1", Properties: props("a", "b")},
		"%24.ct=text%2Fplain&%24.ce=utf-8&%24.uid=me": {ContentType: "text/plain", ContentEncoding: "utf-8",
			Properties: props("$.uid", "me")},
		"%24.to=%2Fx&iothub-operation=d2c&$.schema=s&%24.new&%24.": {
			Properties: props("iothub-operation", "d2c", "$.schema", "s", "$.new", "", "$.", ""),
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
	f.Add("$.sub=a%2Fb&sub=c&%24.sub")
	f.Add("null&empty=&=&==x&%24.mid&%24.uid=&$.=&%24.exp=&iothub-ack=full/")
	f.Add("%24.to=%2Fdevices%2Fd&%24.exp=2030-01-01T00%3A00%3A00.0000000Z&a=b&a=c")
	f.Fuzz(func(t *testing.T, bag string) {
		var once, twice transport.Message
		decodeBag(bag, &once)
		// Decoded fields survive a round trip.
		again := appendBag(nil, &once)
		require.Equal(t, len(again), bagSize(&once))
		decodeBag(string(again), &twice)
		once.Created, twice.Created = once.Created.Truncate(time.Millisecond), twice.Created.Truncate(time.Millisecond)
		once.Expires, twice.Expires = once.Expires.Truncate(time.Millisecond), twice.Expires.Truncate(time.Millisecond)
		if y := once.Created.Year(); y < 0 || y > 9999 || once.Expires.Year() > 9999 || once.Expires.Year() < 0 {
			return
		}
		require.Equal(t, once, twice)
	})
}

func TestABagIsNotAllocated(t *testing.T) {
	m := &transport.Message{ID: "m-1", Component: "c", Created: someTime,
		Properties: []transport.Property{{Name: "a b", Value: "c/d"}}}
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = appendBag(buf[:0], m) }))
}
