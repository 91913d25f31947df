package dialect

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// Each system property, as bytes of the topic, in both directions.
func TestEachSystemPropertyHasItsName(t *testing.T) {
	type system = transport.SystemProperties
	for want, m := range map[string]transport.Message{
		"%24.to=%2Fdevices%2Fd%2Fmessages%2FdeviceBound": {System: &system{To: "/devices/d/messages/deviceBound"}},
		"%24.uid=user%201":            {System: &system{UserID: "user 1"}},
		"%24.on=alarms":               {Output: "alarms"},
		"%24.on=a%2Fb%23%2B%26%3D%25": {Output: "a/b#+&=%"},
		"%24.schema=schema1":          {System: &system{Schema: "schema1"}},
		"%24.ifid=urn%3Aazureiot%3ASecurity%3ASecurityAgent%3A1": {System: &system{InterfaceID: transport.SecurityInterface}},
		"%24.cdid=fromDevice1":                       {System: &system{ConnectionDeviceID: "fromDevice1"}},
		"%24.cmid=fromModule1":                       {System: &system{ConnectionModuleID: "fromModule1"}},
		"%24.diagid=%C3%A4":                          {System: &system{DiagnosticID: "ä"}},
		"%24.diagctx=creationtimeutc%3D1506054179.0": {System: &system{DiagnosticContext: "creationtimeutc=1506054179.0"}},
		"%24.to=t&%24.uid=u&%24.on=o&%24.schema=s&%24.ifid=i&%24.cdid=d&%24.cmid=m&%24.diagid=x&%24.diagctx=y" +
			"&%24.mid=1&%24.ctime=2030-01-01T00%3A00%3A00.000Z&traceparent=00-1&a=": {
			ID: "1", Created: someTime, Output: "o",
			System: &system{To: "t", UserID: "u", Schema: "s", InterfaceID: "i", ConnectionDeviceID: "d",
				ConnectionModuleID: "m", DiagnosticID: "x", DiagnosticContext: "y"},
			Properties: []transport.Property{{Name: "traceparent", Value: "00-1"}, {Name: "a"}},
		},
		"%24.on=o&a=b": {Output: "o", Properties: []transport.Property{{Name: "a", Value: "b"}}},
		"%24.mid=m-1":  {ID: "m-1"},
		"":             {},
	} {
		require.Equal(t, want, string(appendBagAll(nil, &m)))
		require.Equal(t, len(want), bagSizeAll(&m), want)
		for _, wire := range []string{want, strings.ReplaceAll(want, "%24.", "$."), want + "/"} {
			var back transport.Message
			decodeBagAll(wire, &back, new(system))
			require.Equal(t, m, back, wire)
		}
	}
}

// A message with an empty System has the same bag as one without.
func TestAnEmptySystemIsNotSent(t *testing.T) {
	m := transport.Message{ID: "1", System: new(transport.SystemProperties)}
	require.Equal(t, "%24.mid=1", string(appendBagAll(nil, &m)))
	require.Equal(t, 9, bagSizeAll(&m))
}

func TestDecodeAllReplacesWhatItsMemoryHad(t *testing.T) {
	memory := transport.SystemProperties{UserID: "of the message before"}
	var m transport.Message
	decodeBagAll("$.uid=&$.new=x&$.schema=s&$.schema=t", &m, &memory)
	require.Same(t, &memory, m.System)
	require.Equal(t, transport.SystemProperties{Schema: "t"}, memory, "of two, the later one counts")
	require.Equal(t, []transport.Property{{Name: "$.new", Value: "x"}}, m.Properties)
	m = transport.Message{}
	decodeBagAll("a=b", &m, &memory)
	require.Nil(t, m.System)
}

func FuzzAll(f *testing.F) {
	f.Add("%24.to=%2Fdevices%2Fd&%24.uid=u&%24.schema=s&%24.ifid=i&%24.on=o")
	f.Add("$.cdid=d&$.cmid=m&%24.diagid=x&%24.diagctx=creationtimeutc%3D1/")
	f.Add("Foo=Bar&%24.ce=utf-8&%24.to=foo&%24.uid=user1&%24.cdid=fromDevice1&%24.cmid=fromModule1&%24.sub=c")
	f.Add("%24.uid&%24.to=&$.=&$.on=%zz")
	f.Fuzz(func(t *testing.T, bag string) {
		var once, twice transport.Message
		decodeBagAll(bag, &once, new(transport.SystemProperties))
		require.True(t, once.System == nil || *once.System != transport.SystemProperties{})
		again := appendBagAll(nil, &once)
		require.Equal(t, len(again), bagSizeAll(&once))
		decodeBagAll(string(again), &twice, new(transport.SystemProperties))
		once.Created, twice.Created = once.Created.Truncate(time.Millisecond), twice.Created.Truncate(time.Millisecond)
		once.Expires, twice.Expires = once.Expires.Truncate(time.Millisecond), twice.Expires.Truncate(time.Millisecond)
		if y := once.Created.Year(); y < 0 || y > 9999 || once.Expires.Year() > 9999 || once.Expires.Year() < 0 {
			return
		}
		require.Equal(t, once, twice)
	})
}

func TestABagWithSystemPropertiesIsNotAllocated(t *testing.T) {
	m := &transport.Message{ID: "m-1", Output: "o", System: &transport.SystemProperties{UserID: "u", To: "t"}}
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = appendBagAll(buf[:0], m) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = bagSizeAll(m) }))
	var in transport.Message
	p := new(transport.SystemProperties)
	require.Zero(t, testing.AllocsPerRun(100, func() { decodeBagAll("$.uid=u&$.to=t", &in, p) }))
}
