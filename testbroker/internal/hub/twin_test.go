package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestTwinOverMQTT(t *testing.T) {
	for _, module := range []string{"", "mod-1"} {
		hubtest.RunInBubble(t, "module "+module, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			name := "dev-1"
			if module != "" {
				d = hubtest.AddModule(t, h, "dev-1", module)
				name += "/" + module
			}
			w := hubtest.Login(t, h, d)
			require.Equal(t, []byte{0, 1}, append(w.Subscribe(0, hubtest.TwinResults),
				w.Subscribe(1, hubtest.DesiredTopics)...))

			topic, body := hubtest.Request(w, hubtest.TwinGet+"a-1", " ")
			require.Equal(t, "$iothub/twin/res/200/?$rid=a-1", topic)
			require.Equal(t, `{"desired":{"$version":1},"reported":{"$version":1}}`, body)

			version, err := h.SetDesired(name, `{"interval":30,"route":{"a":1,"b":[1,{"x":0}]}}`)
			require.NoError(t, err)
			require.EqualValues(t, 2, version)
			topic, body = hubtest.Received(w)
			require.Equal(t, "$iothub/twin/PATCH/properties/desired/?$version=2", topic)
			require.Equal(t, `{"$version":2,"interval":30,"route":{"a":1,"b":[1,{"x":0}]}}`, body)

			version = hubtest.PatchDesired(t, h, name, `{"route":{"a":null,"c":"<&>"},"interval":60}`)
			require.EqualValues(t, 3, version)
			_, body = hubtest.Received(w)
			require.Equal(t, `{"$version":3,"interval":60,"route":{"a":null,"c":"<&>"}}`, body, "the patch as it was made")

			topic, body = hubtest.Request(w, hubtest.TwinPatch+"a-2", `{"fw":"1.3","old":null}`)
			require.Equal(t, "$iothub/twin/res/204/?$rid=a-2&$version=2", topic)
			require.Empty(t, body)
			topic, _ = hubtest.Request(w, hubtest.TwinPatch+"a-3&$version=2", `{"fw":"1.4"}`)
			require.Equal(t, "$iothub/twin/res/204/?$rid=a-3&$version=3", topic)

			_, body = hubtest.Request(w, hubtest.TwinGet+"a-4", "")
			require.Equal(t,
				`{"desired":{"$version":3,"interval":60,"route":{"b":[1,{"x":0}],"c":"<&>"}},"reported":{"$version":3,`+
					`"fw":"1.4"}}`, body)

			twin := hubtest.Twin(t, h, name)
			require.JSONEq(t, `{"fw":"1.4"}`, string(twin.Reported))
			require.EqualValues(t, 3, twin.ReportedVersion)
			require.EqualValues(t, 3, twin.DesiredVersion)
			require.EqualValues(t, 6, twin.Version)
			require.Equal(t, module, twin.ModuleID)

			all := h.TwinLog(name)
			require.Len(t, all, 4)
			require.Equal(t, hubdata.TwinRequest{
				DeviceID: "dev-1", ModuleID: module, Operation: hubdata.TwinPatch, RequestID: "a-3", Base: 2,
				Body:   []byte(`{"fw":"1.4"}`),
				Status: 204, Version: 3, Answers: 1, Protocol: hubdata.MQTT, Connection: 1, Received: time.Now(),
			}, all[2])
		})
	}
}

// With QoS 1 there is a PUBACK before the answer.
func TestTwinWithQoS1(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, hubtest.TwinResults)
		w.Publish(7, hubtest.TwinPatch+"1", `{"a":1}`)
		require.EqualValues(t, 7, w.Acked())
		topic, _ := hubtest.Received(w)
		require.Equal(t, "$iothub/twin/res/204/?$rid=1&$version=2", topic)
	})
}

func TestSubscribersReceiveDesiredProperties(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		kept := hubtest.ConnectOf(d)
		kept.Flags = 0 // CleanSession=0
		w := hubtest.Dial(t, h)
		w.Connect(kept)
		patch := func(n int) {
			hubtest.PatchDesired(t, h, "dev-1", fmt.Sprintf(`{"n":%d}`, n))
		}
		patch(1)
		hubtest.Quiet(w)
		w.Subscribe(0, hubtest.DesiredTopics)
		hubtest.Quiet(w)
		patch(2)
		_, body := hubtest.Received(w)
		require.Equal(t, `{"$version":3,"n":2}`, body)

		w.Conn.Close()
		synctest.Wait()
		patch(3) // no client is connected, and no notification is kept
		w = hubtest.Dial(t, h)
		require.Equal(t, []byte{1, 0}, w.Connect(kept))
		hubtest.Quiet(w)
		patch(4)
		_, body = hubtest.Received(w)
		require.Equal(t, `{"$version":5,"n":4}`, body, "the session was kept")
		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str(hubtest.DesiredTopics)))
		w.Expect(hubtest.Unsuback)
		patch(5)
		hubtest.Quiet(w)

		w.Subscribe(0, hubtest.DesiredTopics)
		again := hubtest.Login(t, h, d)
		patch(6)
		hubtest.Quiet(again)
		require.Error(t, w.End(), "the connection before has ended")
	})
}

// A connection gets no notification before its CONNACK, and none for a subscription before its
// SUBACK.
func TestNothingBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *testbroker.Hub
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
			if e.Kind == event.Connected {
				hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
			}
		}})
		kept := hubtest.ConnectOf(d)
		kept.Flags = 0
		w := hubtest.Dial(t, h)
		w.Connect(kept)
		w.Subscribe(0, hubtest.DesiredTopics)
		w.Conn.Close()
		synctest.Wait()
		w = hubtest.Dial(t, h)
		require.Equal(t, []byte{1, 0}, w.Connect(kept))
		hubtest.Quiet(w)

		h.Inject(fault.Fault{Kind: fault.SlowSuback, Delay: time.Second})
		w.Send(hubtest.SubscribeBytes(3, hubtest.TwinResults))
		w.Send(hubtest.PublishBytes(0, 0, hubtest.TwinGet+"1", ""))
		hubtest.Quiet(w)
		w.Expect(hubtest.Suback)
		topic, _ := hubtest.Request(w, hubtest.TwinGet+"2", "")
		require.Equal(t, "$iothub/twin/res/200/?$rid=2", topic)
		all := h.TwinLog("dev-1")
		require.Equal(t, []int{0, 1}, []int{all[0].Answers, all[1].Answers})
	})
}

// deep returns nested objects.
func deep(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

func TestLimitsOfATwin(t *testing.T) {
	long := strings.Repeat("x", 4096)
	nine := make([]string, 9) // strings with a total size slightly below 32 KB
	for i := range nine[:8] {
		nine[i] = fmt.Sprintf(`"k%d":"%s"`, i, long[:4094])
	}
	full := strings.Join(nine[:8], ",")
	for name, c := range map[string]struct {
		patch string
		ok    bool
	}{
		"empty":                       {`{}`, true},
		"unicode":                     {`{"höhe":"€"}`, true},
		"longest text":                {`{"a":"` + long + `"}`, true},
		"text too long":               {`{"a":"` + long + `x"}`, false},
		"null in an array":            {`{"a":[1,null]}`, false},
		"null in a nested array":      {`{"a":{"b":[[null]]}}`, false},
		"null in an object in one":    {`{"a":[{"b":{"c":null}}]}`, false},
		"null beside an array":        {`{"a":[{"b":1}],"c":{"d":null}}`, true},
		"text too long in an array":   {`{"a":[1,["` + long + `x"]]}`, false},
		"longest key":                 {`{"` + long[:1024] + `":1}`, true},
		"key too long":                {`{"` + long[:1025] + `":1}`, false},
		"dot":                         {`{"a.b":1}`, false},
		"dollar":                      {`{"$version":1}`, false},
		"dollar within":               {`{"a":[{"$b":1}]}`, false},
		"space":                       {`{"a":{"b c":1}}`, false},
		"control character":           {`{"a\u0001":1}`, false},
		"control character C1":        {`{"a\u0085":1}`, false},
		"key that is to be removed":   {`{"a b":null}`, false},
		"deepest":                     {deep(11), true},
		"too deep":                    {deep(12), false},
		"too deep by arrays":          {`{"a":` + strings.Repeat("[", 11) + strings.Repeat("]", 11) + `}`, false},
		"largest integer":             {`{"a":4503599627370495}`, true},
		"integer too large":           {`{"a":4503599627370496}`, false},
		"smallest integer":            {`{"a":-4503599627370496}`, true},
		"integer too small":           {`{"a":-4503599627370497}`, false},
		"integer beyond 64 bits":      {`{"a":99999999999999999999}`, false},
		"float":                       {`{"a":1.5e300}`, true},
		"float out of range":          {`{"a":1e999}`, false},
		"size that just fits":         {`{` + full + `}`, true},
		"size that does not":          {`{` + full + `,"x":1}`, false},
		"control characters are free": {`{` + full + `,"":"\u0000\u0001"}`, true},
		"no JSON":                     {`{"a":`, false},
		"two values":                  {`{} {}`, false},
		"no object":                   {`[1]`, false},
		"null":                        {`null`, false},
		"nothing":                     {``, false},
		"no UTF-8":                    {"{\"a\":\"\xff\"}", false},
	} {
		t.Run(name, func(t *testing.T) {
			h, d := hubtest.NewHub(t, nil)
			w := hubtest.Login(t, h, d)
			w.Subscribe(0, hubtest.TwinResults)
			topic, body := hubtest.Request(w, hubtest.TwinPatch+"1", c.patch)
			_, err := h.PatchDesired("dev-1", c.patch)
			if c.ok {
				require.Equal(t, "$iothub/twin/res/204/?$rid=1&$version=2", topic)
				require.NoError(t, err)
				return
			}
			require.Equal(t, "$iothub/twin/res/400/?$rid=1", topic)
			var answer struct {
				ErrorCode                         int
				TrackingID, Message, TimestampUTC string
			}
			require.NoError(t, json.Unmarshal([]byte(body), &answer))
			require.Equal(t, 400004, answer.ErrorCode)
			require.NotEmpty(t, answer.TrackingID)
			require.Contains(t, answer.Message, "reported properties: ")
			_, bad := time.Parse("2006-01-02T15:04:05.0000000Z", answer.TimestampUTC)
			require.NoError(t, bad)
			var service *hubdata.ServiceError
			require.ErrorAs(t, err, &service)
			require.Equal(t, 400004, service.Code)
			require.Equal(t, 400, service.Status())
			twin := hubtest.Twin(t, h, "dev-1")
			require.Equal(t, `{}`+`{}`, string(twin.Desired)+string(twin.Reported), "nothing of it was done")
		})
	}
}

// The size limit applies to the resulting section, not to the patch.
func TestSizesAddUp(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	long := strings.Repeat("x", 4000)
	for i := range 8 {
		hubtest.PatchDesired(t, h, "dev-1", fmt.Sprintf(`{"k%d":"%s"}`, i, long))
	}
	_, err := h.PatchDesired("dev-1", `{"k8":"`+long+`"}`)
	require.ErrorContains(t, err, "36018 bytes")
	version := hubtest.PatchDesired(t, h, "dev-1", `{"k0":null,"k8":"`+long+`"}`)
	require.EqualValues(t, 10, version, "what was refused has none")
	require.NoError(t, h.PatchTags("dev-1", `{"a":"`+long+`","b":"`+long+`"}`))
	require.ErrorContains(t, h.PatchTags("dev-1", `{"c":"`+long+`"}`), "at most 8192")
	version, err = h.SetDesired("dev-1", `{}`)
	require.NoError(t, err)
	require.EqualValues(t, 11, version)
}

func TestEtagsAndVersions(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	twin := func() hubdata.Twin {
		tw := hubtest.Twin(t, h, "dev-1")
		return tw
	}
	first := twin()
	require.Equal(t, "AAAAAAAAAAE=", first.ETag)
	w := hubtest.Login(t, h, d)
	w.Subscribe(0, hubtest.TwinResults)
	hubtest.Request(w, hubtest.TwinPatch+"1", `{"a":1}`)
	reported := twin()
	require.Equal(t, first.ETag, reported.ETag)
	require.Equal(t, first.Version+1, reported.Version)
	require.NoError(t, h.PatchTags("dev-1", `{"site":"x"}`))
	tagged := twin()
	require.Equal(t, "AAAAAAAAAAI=", tagged.ETag)
	require.Equal(t, first.DesiredVersion, tagged.DesiredVersion)
	require.JSONEq(t, `{"site":"x"}`, string(tagged.Tags))

	require.NoError(t, h.RemoveDevice("dev-1"))
	_, err := h.Twin("dev-1")
	require.ErrorIs(t, err, testbroker.ErrNotFound)
	var service *hubdata.ServiceError
	require.ErrorAs(t, err, &service)
	require.Equal(t, 404001, service.Code)
	_, err = h.PatchDesired("dev-1/mod-1", "{}")
	require.ErrorIs(t, err, testbroker.ErrNotFound)
	require.Empty(t, h.TwinLog("dev-1"))
	hubtest.AddDevice(t, h, "dev-1")
	require.JSONEq(t, `{}`, string(twin().Reported), "another device, another twin")
	_, err = h.Twin("dev-1/mod-1")
	require.ErrorAs(t, err, &service)
	require.Equal(t, 404010, service.Code)
}

// Each member has the time of its last change, and so have its parents.
func TestMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight of 2000-01-01
		h, d := hubtest.NewHub(t, nil)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.TwinResults)
		hubtest.Request(w, hubtest.TwinPatch+"1", `{"x":{"y":1}}`)
		hubtest.PatchDesired(t, h, "dev-1", `{"a":{"b":1,"c":{"d":1}},"e":1,"f":1}`)
		time.Sleep(1500 * time.Millisecond)
		hubtest.PatchDesired(t, h, "dev-1", `{"a":{"b":2},"e":{"g":3},"f":null}`)
		twin := hubtest.Twin(t, h, "dev-1")
		const then, now = `"$lastUpdated":"2000-01-01T00:00:00.0000000Z"`,
			`"$lastUpdated":"2000-01-01T00:00:01.5000000Z","$lastUpdatedVersion":3`
		const first = then + `,"$lastUpdatedVersion":2`
		require.JSONEq(t, `{`+now+`,"a":{`+now+`,"b":{`+now+`},"c":{`+first+`,"d":{`+first+`}}},"e":{`+now+`,"g":{`+now+`}}}`,
			string(twin.DesiredMetadata))
		require.JSONEq(t, `{`+then+`,"x":{`+then+`,"y":{`+then+`}}}`, string(twin.ReportedMetadata))
	})
}

// The base of a patch is the version on which it is based.
func TestBaseOfAPatch(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	w := hubtest.Login(t, h, d)
	w.Subscribe(0, hubtest.TwinResults)
	topic, body := hubtest.Request(w, hubtest.TwinPatch+"1&$version=2", `{"a":1}`)
	require.Equal(t, "$iothub/twin/res/412/?$rid=1", topic)
	require.Contains(t, body, `"errorCode":412001`)
	topic, _ = hubtest.Request(w, hubtest.TwinPatch+"2&$version=1", `{"a":1}`)
	require.Equal(t, "$iothub/twin/res/204/?$rid=2&$version=2", topic)
}

func TestTopicsThatEndAConnection(t *testing.T) {
	for _, topic := range []string{
		"$iothub/twin/GET/", "$iothub/twin/GET/?", "$iothub/twin/GET/?$rid=", "$iothub/twin/GET/?rid=1", "$iothub/twin/GET",
		"$iothub/twin/get/?$rid=1",
		"$iothub/twin/PATCH/properties/desired/?$rid=1", "$iothub/twin/PATCH/properties/reported/?$rid=1&$version=x",
		"$iothub/twin/PATCH/properties/reported/?$rid=1&$version=0", "$iothub/twin/GET/?$rid=1&$rid=2",
		hubtest.TwinGet + strings.Repeat("r", 65510), // the topic of the answer would be too long
		"$iothub/twin/res/200/?$rid=1", "$iothub/methods/POST/a/?$rid=1",
		"$iothub/methods/res/ok/?$rid=1", "$iothub/methods/res/200/", "$iothub/methods/res//?$rid=1",
		"$iothub/methods/res/99999999999/?$rid=1", "$iothub/", "$iothub/x",
		"$iothub/twin/GET/?$rid=+", "$iothub/twin/GET/?$rid=#",
	} {
		h, d := hubtest.NewHub(t, nil)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.TwinResults)
		w.Send(hubtest.PublishBytes(0, 0, topic, "{}"))
		require.Error(t, w.End(), topic)
		require.Empty(t, h.TwinLog("dev-1"))
	}
	h, d := hubtest.NewHub(t, nil)
	w := hubtest.Login(t, h, d)
	w.Send(hubtest.PublishBytes(0, 0, hubtest.TwinPatch+"1", strings.Repeat(" ", hubdata.MaxMessage+1)))
	require.Error(t, w.End(), "too large")
	w = hubtest.Login(t, h, d)
	w.Send(hubtest.PublishBytes(4, 1, hubtest.TwinGet+"1", ""))
	require.Error(t, w.End(), "QoS 2")
}

func TestWaitReported(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.TwinResults)
		at := func(version int64) func(hubdata.Twin) bool {
			return func(tw hubdata.Twin) bool { return tw.ReportedVersion >= version }
		}
		done := make(chan error)
		go func() { done <- h.WaitReported(t.Context(), "dev-1", at(2)) }()
		synctest.Wait()
		hubtest.Request(w, hubtest.TwinPatch+"1", `{"a":1}`)
		require.NoError(t, <-done)
		ctx, cancel := hubtest.ContextWithCause(errors.New("enough"))
		defer cancel()
		require.EqualError(t, h.WaitReported(ctx, "dev-1", at(3)), "enough")
		require.ErrorIs(t, h.WaitReported(context.Background(), "dev-2", at(1)), testbroker.ErrNotFound)
	})
}

// twinAMQP is a pair of twin links.
type twinAMQP struct {
	t testing.TB
	s *amqp.Sender
	r *amqp.Receiver
}

func (l twinAMQP) request(operation string, annotations amqp.Annotations, id any, text string) *amqp.Message {
	l.t.Helper()
	all := amqp.Annotations{"operation": operation}
	for k, v := range annotations {
		all[k] = v
	}
	require.NoError(l.t, l.s.Send(l.t.Context(), &amqp.Message{
		Annotations: all, Properties: &amqp.MessageProperties{CorrelationID: id}, Data: [][]byte{[]byte(text)},
	}, nil))
	return l.next()
}

func (l twinAMQP) next() *amqp.Message {
	l.t.Helper()
	m, err := l.r.Receive(hubtest.Soon(l.t), nil)
	require.NoError(l.t, err)
	require.NoError(l.t, l.r.AcceptMessage(l.t.Context(), m))
	return m
}

func TestTwinOverAMQP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		s, r := hubtest.Pair(p, "/devices/dev-1/twin", "twin:1")
		l := twinAMQP{t, s, r}
		const notices = "/notifications/twin/properties/desired"
		hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)

		m := l.request("PUT", amqp.Annotations{"resource": notices, "version": nil}, "Put1", " ")
		require.Equal(t, "Put1", m.Properties.CorrelationID)
		require.Equal(t, int32(200), m.Annotations["status"])
		require.Empty(t, m.GetData())
		hubtest.PatchDesired(t, h, "dev-1", `{"a":null,"b":2}`)
		m = l.next()
		require.Nil(t, m.Properties.CorrelationID)
		require.Equal(t, amqp.Annotations{"resource": "/properties/desired", "version": int64(3)}, m.Annotations)
		require.Equal(t, `{"$version":3,"a":null,"b":2}`, string(m.GetData()))

		m = l.request("GET", nil, amqp.UUID{1, 2}, " ")
		require.Equal(t, amqp.UUID{1, 2}, m.Properties.CorrelationID)
		require.Equal(t, `{"desired":{"$version":3,"b":2},"reported":{"$version":1}}`, string(m.GetData()))

		reported := amqp.Annotations{"resource": "/properties/reported"}
		m = l.request("PATCH", reported, "p", `{"x":[1,2]}`)
		require.Equal(t, amqp.Annotations{"status": int32(204), "version": int64(2)}, m.Annotations)
		reported["version"] = int64(1)
		m = l.request("PATCH", reported, "p", `{"x":null}`)
		require.Equal(t, amqp.Annotations{"status": int32(412)}, m.Annotations)
		require.Contains(t, string(m.GetData()), `"errorCode":412001`)
		reported["version"] = uint32(2)
		require.Equal(t, int64(3), l.request("PATCH", reported, "p", `{"x":null}`).Annotations["version"])

		for _, bad := range []struct {
			operation string
			with      amqp.Annotations
			text      string
		}{
			{"", nil, ""}, {"POST", nil, ""}, {"PATCH", nil, "{}"}, {"PUT", amqp.Annotations{"resource": "/properties/desired"},
				""},
			{"PATCH", amqp.Annotations{"resource": "/properties/reported", "version": "x"}, "{}"},
			{"PATCH", amqp.Annotations{"resource": "/properties/reported"},
				"{"},
		} {
			m = l.request(bad.operation, bad.with, "bad", bad.text)
			require.Equal(t, int32(400), m.Annotations["status"], "%+v", bad)
			require.Contains(t, string(m.GetData()), `"errorCode":4000`)
		}

		l.request("DELETE", amqp.Annotations{"resource": notices}, "d", "")
		hubtest.PatchDesired(t, h, "dev-1", `{"c":1}`)
		m = l.request("GET", nil, "last", "")
		require.Equal(t, "last", m.Properties.CorrelationID, "nothing before it")
		require.Equal(t, hubdata.AMQP, h.TwinLog("dev-1")[0].Protocol)
		require.Equal(t, hubdata.TwinSubscribe, h.TwinLog("dev-1")[0].Operation)
	})
}

// Notifications end with the links, and every subscribed pair gets them.
func TestNotificationsOverAMQPEndWithTheLinks(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		var pairs []twinAMQP
		for i := range 2 {
			s, r := hubtest.Pair(p, "/devices/dev-1/twin", fmt.Sprint("twin:", i))
			l := twinAMQP{t, s, r}
			l.request("PUT", amqp.Annotations{"resource": "/notifications/twin/properties/desired"}, "1", "")
			pairs = append(pairs, l)
		}
		mute := h.Inject(fault.Fault{Kind: fault.SwallowDesired, Times: -1})
		heard := func() int {
			before := mute.Fired()
			hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
			return mute.Fired() - before
		}
		require.Equal(t, 2, heard())
		require.NoError(t, pairs[0].s.Close(t.Context()))
		require.Equal(t, 1, heard())
		require.NoError(t, p.Conn.Close())
		synctest.Wait()
		require.Zero(t, heard())
	})
}

func TestFaultsOfTwins(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.TwinResults)
		inject := func(f fault.Fault) *testbroker.Injected {
			f.Operation = hubdata.TwinGet
			return h.Inject(f)
		}
		get := func(rid string) string {
			topic, _ := hubtest.Request(w, hubtest.TwinGet+rid, "")
			return strings.TrimPrefix(topic, "$iothub/twin/res/")
		}
		in := inject(fault.Fault{Kind: fault.RefuseTwin, RetryAfter: 1500 * time.Millisecond})
		topic, _ := hubtest.Request(w, hubtest.TwinPatch+"0", `{"a":1}`)
		require.Contains(t, topic, "/204/", "it is about another operation")
		require.Equal(t, "429/?$rid=1&retry-after=2", get("1"))
		require.Equal(t, 1, in.Fired())
		inject(fault.Fault{Kind: fault.RefuseTwin, Status: 503})
		topic, body := hubtest.Request(w, hubtest.TwinGet+"2", "")
		require.Equal(t, "$iothub/twin/res/503/?$rid=2", topic)
		require.Contains(t, body, `"errorCode":503001`)
		inject(fault.Fault{Kind: fault.MisnameTwin})
		require.Equal(t, "200/?$rid=3-other", get("3"))
		inject(fault.Fault{Kind: fault.DuplicateTwin})
		require.Equal(t, "200/?$rid=4", get("4"))
		topic, _ = hubtest.Received(w)
		require.Contains(t, topic, "$rid=4")
		inject(fault.Fault{Kind: fault.GarbleTwin})
		_, body = hubtest.Request(w, hubtest.TwinGet+"5", "")
		require.Equal(t, `{"desired":`, body)
		inject(fault.Fault{Kind: fault.SwallowTwin})
		w.Send(hubtest.PublishBytes(0, 0, hubtest.TwinGet+"6", ""))
		hubtest.Quiet(w)
		inject(fault.Fault{Kind: fault.SlowTwin, Delay: time.Minute})
		w.Send(hubtest.PublishBytes(0, 0, hubtest.TwinGet+"7", ""))
		began := time.Now()
		require.Equal(t, "200/?$rid=8", get("8"), "others do not wait for it")
		require.Equal(t, began, time.Now())
		topic, _ = hubtest.Received(w)
		require.Contains(t, topic, "$rid=7")
		require.Equal(t, time.Minute, time.Since(began))
		throttle := h.Inject(fault.Fault{Kind: fault.Throttle})
		require.Equal(t, "429/?$rid=9", get("9"))
		throttle.Remove()

		counts := []int{}
		for _, r := range h.TwinLog("dev-1") {
			counts = append(counts, r.Answers)
		}
		require.Equal(t, []int{1, 1, 1, 1, 2, 1, 0, 1, 1, 1}, counts)

		for _, kind := range []fault.Kind{fault.DropBeforeTwin, fault.DropAfterTwin} {
			h.Inject(fault.Fault{Kind: kind})
			w.Send(hubtest.PublishBytes(0, 0, hubtest.TwinPatch+"x", `{"b":null}`))
			require.Error(t, w.End())
			w = hubtest.Login(t, h, d)
			w.Subscribe(0, hubtest.TwinResults)
		}
		all := h.TwinLog("dev-1")
		require.Zero(t, all[10].Status)
		require.EqualValues(t, 3, all[11].Version, "it was done")
	})
}

func TestFaultsOfNotifications(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.DesiredTopics)
		patch := func() {
			hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		}
		version := func() string {
			topic, _ := hubtest.Received(w)
			return strings.TrimPrefix(topic, "$iothub/twin/PATCH/properties/desired/?$version=")
		}
		h.Inject(fault.Fault{Kind: fault.SwallowDesired})
		h.Inject(fault.Fault{Kind: fault.SlowDesired, Delay: time.Second})
		for range 3 {
			patch()
		}
		h.Inject(fault.Fault{Kind: fault.DuplicateDesired})
		patch()
		require.Equal(t, []string{"4", "5", "5", "3"}, []string{version(), version(), version(), version()})
		drop := h.Inject(fault.Fault{Kind: fault.DropAfterDesired})
		patch()
		require.Equal(t, "6", version())
		require.Error(t, w.End())
		require.Equal(t, 1, drop.Fired())
	})
}

// Changes arrive in the order of their versions, with concurrent writers.
func TestNotificationsInOrder(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	w := hubtest.Login(t, h, d)
	w.Subscribe(0, hubtest.DesiredTopics)
	const writers, each = 4, 50
	for range writers {
		go func() {
			for range each {
				if _, err := h.PatchDesired("dev-1", `{"a":1}`); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for i := range writers * each {
		topic, _ := hubtest.Received(w)
		require.Equal(t, fmt.Sprintf("$iothub/twin/PATCH/properties/desired/?$version=%d", i+2), topic)
	}
}

// Faults of answers and notifications work over AMQP too; ids keep their types.
func TestFaultsOfTwinsOverAMQP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		s, r := hubtest.Pair(p, "/devices/dev-1/twin", "twin:1")
		l := twinAMQP{t, s, r}
		for id, other := range map[any]any{"a": "a-other", amqp.UUID{1}: amqp.UUID{1, 15: 0xff},
			uint64(7): uint64(7 + 1<<32)} {
			h.Inject(fault.Fault{Kind: fault.MisnameTwin})
			require.Equal(t, other, l.request("GET", nil, id, "").Properties.CorrelationID)
		}
		h.Inject(fault.Fault{Kind: fault.RefuseTwin, RetryAfter: time.Minute, Operation: hubdata.TwinSubscribe})
		m := l.request("PUT", amqp.Annotations{"resource": "/notifications/twin/properties/desired"}, "1", "")
		require.Equal(t, amqp.Annotations{"status": int32(429), "retry-after": int32(60)}, m.Annotations)
		hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		l.request("PUT", amqp.Annotations{"resource": "/notifications/twin/properties/desired"}, "2", "")
		h.Inject(fault.Fault{Kind: fault.DuplicateDesired})
		hubtest.PatchDesired(t, h, "dev-1", `{"a":2}`)
		require.Equal(t, int64(3), l.next().Annotations["version"], "the request that was refused was not carried out")
		require.Equal(t, int64(3), l.next().Annotations["version"])
		h.Inject(fault.Fault{Kind: fault.DropAfterTwin})
		s.Send(t.Context(), &amqp.Message{
			Annotations: amqp.Annotations{"operation": "PATCH", "resource": "/properties/reported"},
			Properties:  &amqp.MessageProperties{CorrelationID: "3"}, Data: [][]byte{[]byte(`{"x":1}`)},
		}, &amqp.SendOptions{Settled: true})
		<-p.Conn.Done()
		twin := hubtest.Twin(t, h, "dev-1")
		require.EqualValues(t, 2, twin.ReportedVersion)
		require.Zero(t, h.TwinLog("dev-1")[5].Answers)
	})
}
