package amqpfront_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// An eventsCase is a hub with events and the connection of a back end.
type eventsCase struct {
	*hubtest.Peer
	t      testing.TB
	hub    *testbroker.Hub
	policy hubdata.Policy
	device *amqp.Sender // of dev-1
	number string       // the partition of dev-1
}

func newEvents(t testing.TB, o *testbroker.Options) *eventsCase {
	h, d, policy := newService(t, o)
	p := loginService(t, h, policy)
	c := &eventsCase{p, t, h, policy, hubtest.LoginAMQP(t, h, d).Telemetry(d), ""}
	for c.number == "" {
		c.send("first")
		for i := range 4 {
			if s := c.describe(strconv.Itoa(i)); s["is_partition_empty"] == false {
				c.number = strconv.Itoa(i)
			}
		}
	}
	return c
}

// send sends telemetry of dev-1.
func (c *eventsCase) send(bodies ...string) {
	c.t.Helper()
	for _, b := range bodies {
		require.NoError(c.t, c.device.Send(c.t.Context(), hubtest.Body(b), nil))
	}
}

// ask asks $management.
func (c *eventsCase) ask(properties map[string]any) *amqp.Message {
	c.t.Helper()
	s := c.Session()
	from, err := s.NewReceiver(c.t.Context(), "$management", &amqp.ReceiverOptions{TargetAddress: "me",
		RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr()})
	require.NoError(c.t, err)
	to, err := s.NewSender(c.t.Context(), "$management", nil)
	require.NoError(c.t, err)
	me := "me"
	require.NoError(c.t, to.Send(c.t.Context(), &amqp.Message{
		Properties: &amqp.MessageProperties{MessageID: uint64(7), ReplyTo: &me}, ApplicationProperties: properties,
	}, nil))
	m, err := from.Receive(c.t.Context(), nil)
	require.NoError(c.t, err)
	require.Equal(c.t, uint64(7), m.Properties.CorrelationID)
	require.NoError(c.t, s.Close(c.t.Context()))
	return m
}

// question returns the properties of a question; that about the event hub has no partition.
func question(kind, name, partition string) map[string]any {
	all := map[string]any{"operation": "READ", "type": kind, "name": name}
	if partition != "" {
		all["partition"] = partition
	}
	return all
}

// describe returns the answer about a partition.
func (c *eventsCase) describe(partition string) map[string]any {
	c.t.Helper()
	m := c.ask(question("com.microsoft:partition", "hub", partition))
	require.Equal(c.t, int32(200), m.ApplicationProperties["status-code"], m.ApplicationProperties)
	return m.Value.(map[string]any)
}

// address returns that of a partition.
func address(group, partition string) string {
	return "hub/ConsumerGroups/" + group + "/Partitions/" + partition
}

// reader attaches a link to the partition of dev-1.
func (c *eventsCase) reader(filter string, o *amqp.ReceiverOptions) (*amqp.Receiver, error) {
	if o == nil {
		o = &amqp.ReceiverOptions{}
	}
	if filter != "" {
		o.Filters = []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation." + filter)}
	}
	return c.Session().NewReceiver(c.t.Context(), address("$Default", c.number), o)
}

// bodies receives n events and returns their bodies.
func (c *eventsCase) bodies(r *amqp.Receiver, n int) []string {
	c.t.Helper()
	var all []string
	for range n {
		m, err := r.Receive(c.t.Context(), nil)
		require.NoError(c.t, err)
		all = append(all, string(m.GetData()))
	}
	return all
}

// none requires that nothing comes.
func none(t testing.TB, r *amqp.Receiver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := r.Receive(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded, m)
}

func TestEventsFromEveryPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		time.Sleep(time.Second)
		c.send("b")
		at := time.Now().UnixMilli()
		time.Sleep(time.Second)
		c.send("c")
		for filter, want := range map[string][]string{
			"":                                       {"first", "b", "c"},
			"x-opt-offset > '-1'":                    {"first", "b", "c"},
			"x-opt-offset > '512'":                   {"c"},
			"x-opt-offset >= '512'":                  {"b", "c"},
			"x-opt-sequence-number > '0'":            {"b", "c"},
			"x-opt-sequence-number >= 2":             {"c"},
			"x-opt-offset > '@latest'":               nil,
			fmt.Sprint("x-opt-enqueued-time > ", at): {"c"},
		} {
			r, err := c.reader(filter, nil)
			require.NoError(t, err, filter)
			require.Equal(t, want, c.bodies(r, len(want)), filter)
			none(t, r)
			require.NoError(t, r.Close(t.Context()))
		}
		r, err := c.reader("x-opt-offset > '@latest'", nil)
		require.NoError(t, err)
		c.send("d")
		require.Equal(t, []string{"d"}, c.bodies(r, 1))
	})
}

func TestEventOfTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		d, err := c.hub.Device("dev-1")
		require.NoError(t, err)
		m := hubtest.Body("{}")
		kind, user := "application/json", "é"
		m.Properties = &amqp.MessageProperties{MessageID: "id-1", CorrelationID: "c-1", ContentType: &kind,
			UserID: []byte(user)}
		m.ApplicationProperties = map[string]any{"a": "b", "iothub-creation-time-utc": "2000-01-01T00:00:00Z"}
		m.Annotations = amqp.Annotations{"dt-subject": "thermostat"}
		require.NoError(t, c.device.Send(t.Context(), m, nil))
		r, err := c.reader("x-opt-sequence-number >= 1", &amqp.ReceiverOptions{
			DesiredCapabilities: []string{"com.microsoft:enable-receiver-runtime-metric"},
		})
		require.NoError(t, err)
		e, err := r.Receive(hubtest.Soon(t), nil)
		require.NoError(t, err)
		now := time.Now().UTC()
		stamp := func(key string) {
			require.WithinDuration(t, now, e.Annotations[key].(time.Time), 0, key)
			delete(e.Annotations, key)
		}
		stamp("x-opt-enqueued-time")
		stamp("iothub-enqueuedtime")
		require.Equal(t, amqp.Annotations{
			"x-opt-sequence-number": int64(1), "x-opt-offset": "512", "iothub-message-source": "Telemetry",
			"iothub-connection-device-id": "dev-1",
			"iothub-connection-auth-method": `{"scope":"device","type":"sas","issuer":"iothub",` +
				`"acceptingIpFilterRule":null}`,
			"iothub-connection-auth-generation-id": d.GenerationID, "dt-subject": "thermostat",
		}, e.Annotations)
		require.Equal(t, [][]byte{[]byte("{}")}, e.Data)
		require.Equal(t, "id-1", e.Properties.MessageID)
		require.Equal(t, "c-1", e.Properties.CorrelationID)
		require.Equal(t, user, string(e.Properties.UserID))
		require.Equal(t, kind, *e.Properties.ContentType)
		require.Equal(t, m.ApplicationProperties, e.ApplicationProperties)
		require.Equal(t, int64(1), e.DeliveryAnnotations["last_enqueued_sequence_number"])
		require.Equal(t, "512", e.DeliveryAnnotations["last_enqueued_offset"])
		require.Contains(t, e.DeliveryAnnotations, "last_enqueued_time_utc")
		require.WithinDuration(t, now, e.DeliveryAnnotations["runtime_info_retrieval_time_utc"].(time.Time), 0)
	})
}

func TestEventsOfADeviceStayInOnePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		for i := range 8 {
			d, err := c.hub.AddDevice(fmt.Sprint("more-", i))
			require.NoError(t, err)
			s := hubtest.LoginAMQP(t, c.hub, d).Telemetry(d)
			for range 3 {
				require.NoError(t, s.Send(t.Context(), hubtest.Body(d.ID), nil))
			}
		}
		got := map[string]int{}
		for i := range 4 {
			s := c.describe(strconv.Itoa(i))
			n := int(s["last_enqueued_sequence_number"].(int64)) + 1
			r, err := c.Session().NewReceiver(t.Context(), address("$default", strconv.Itoa(i)), nil)
			require.NoError(t, err)
			here := map[string]int{}
			for _, b := range c.bodies(r, n) {
				here[b]++
			}
			for b, n := range here {
				require.Zero(t, got[b], "%s is in two partitions", b)
				got[b] = n
			}
		}
		require.Len(t, got, 9)
	})
}

func TestQuestionsAboutTheEventHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, &testbroker.Options{Events: testbroker.EventOptions{ConsumerGroups: []string{"second"}}})
		m := c.ask(question("com.microsoft:eventhub", "hub", ""))
		value := m.Value.(map[string]any)
		require.WithinDuration(t, time.Now(), value["created_at"].(time.Time), time.Minute)
		delete(value, "created_at")
		require.Equal(t, map[string]any{
			"name": "hub", "type": "com.microsoft:eventhub", "partition_count": int32(4),
			"partition_ids": []string{"0", "1", "2", "3"}, "georeplication_factor": int32(1),
		}, value)

		s := c.describe(c.number)
		require.Equal(t, "0", s["last_enqueued_offset"])
		require.Equal(t, int64(0), s["begin_sequence_number"])
		other := "0"
		if c.number == other {
			other = "1"
		}
		s = c.describe(other)
		require.Equal(t, true, s["is_partition_empty"])
		require.Equal(t, "-1", s["last_enqueued_offset"])
		require.Equal(t, int64(-1), s["last_enqueued_sequence_number"])

		for name, q := range map[string]struct {
			status int32
			asked  map[string]any
		}{
			"partition": {404, question("com.microsoft:partition", "hub", "4")},
			"name":      {404, question("com.microsoft:eventhub", "hub2", "")},
			"operation": {400, map[string]any{"operation": "DELETE", "type": "com.microsoft:eventhub", "name": "hub"}},
			"type":      {400, question("com.microsoft:topic", "hub", "")},
			"nothing":   {400, nil},
		} {
			require.Equal(t, q.status, c.ask(q.asked).ApplicationProperties["status-code"], name)
		}
	})
}

func TestRefusedReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		for what, want := range map[string]string{
			address("$Default", "4"): "com.microsoft:argument-out-of-range",
			address("third", "0"):    "amqp:not-found",
			"hub/Groups/a":           "amqp:not-found",
			"amqps://hub2.example.test/hub/ConsumerGroups/$Default/Partitions/0": "amqp:not-found",
		} {
			_, err := c.Session().NewReceiver(t.Context(), what, nil)
			require.Equal(t, want, hubtest.Condition(t, err), what)
		}
		for filter, want := range map[string]string{
			"x-opt-offset > '1:1:2'":      "com.microsoft:georeplication:invalid-offset",
			"x-opt-offset > '999999'":     "com.microsoft:argument-error",
			"x-opt-sequence-number > '7'": "com.microsoft:argument-error",
			"x-opt-partition-key = 'a'":   "com.microsoft:argument-error",
		} {
			_, err := c.reader(filter, nil)
			require.Equal(t, want, hubtest.Condition(t, err), filter)
		}
		_, err := c.reader("", &amqp.ReceiverOptions{Properties: map[string]any{"com.microsoft:epoch": "one"}})
		require.Equal(t, "amqp:invalid-field", hubtest.Condition(t, err))
		_, err = c.Session().NewSender(t.Context(), "hub", nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
		require.ErrorContains(t, err, "'Send' claim(s) are required")

		policy, err := c.hub.AddPolicy("reader", hubdata.RightRegistryRead, hubdata.RightDeviceConnect)
		require.NoError(t, err)
		c.Peer = loginService(t, c.hub, policy)
		_, err = c.reader("", nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
	})
}

func TestRedirectFromTheHubsOwnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		for asked, want := range map[string]string{
			"messages/events/$management":                           "/hub/$management",
			"amqps://hub.example.test/messages/events/$management":  "/hub/$management",
			"messages/events/":                                      "/hub/",
			"/messages/events/ConsumerGroups/$Default/Partitions/0": "/hub/ConsumerGroups/$Default/Partitions/0",
		} {
			_, err := c.Session().NewReceiver(t.Context(), asked, nil)
			var refusal *amqp.Error
			require.ErrorAs(t, err, &refusal, asked)
			require.Equal(t, amqp.ErrCondLinkRedirect, refusal.Condition)
			require.Equal(t, map[string]any{
				"hostname": "hub.example.test", "network-host": "hub.example.test", "port": int32(5671),
				"address": "amqps://hub.example.test:5671" + want,
			}, refusal.Info)
		}
	})
}

func TestRedirectNeedsTheRight(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		policy := hubtest.AddPolicy(t, h, "devices", hubdata.RightDeviceConnect)
		_, err := loginService(t, h, policy).Session().NewReceiver(t.Context(), "messages/events/", nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
	})
}

// Clients that never settle would stop at their credit otherwise.
func TestAnswerSaysThatEventsComeSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := hubtest.DialFrames(t, h)
		p.Open(nil)
		p.Begin(0)
		p.Attach(hubtest.SenderTo("$cbs", 100))
		p.Attach(hubtest.ReceiverFrom("$cbs", 101))
		p.Say(0, hubtest.Credit(101, 10))
		require.Equal(t, 200, p.Put(0, "put-token", hubtest.PolicyToken(policy, h.HostName())))
		for asked, answered := range map[uint8]uint8{
			amqpwire.SendMixed: amqpwire.SendSettled, amqpwire.SendSettled: amqpwire.SendSettled,
			amqpwire.SendUnsettled: amqpwire.SendUnsettled,
		} {
			a := hubtest.ReceiverFrom(address("$Default", "0"), uint32(asked))
			a.Name, a.SndSettleMode = fmt.Sprint(asked), asked
			require.Equal(t, answered, p.Attach(a).SndSettleMode)
		}
		// A refusal has neither end: some clients know it only by that.
		p.Say(0, hubtest.ReceiverFrom(address("third", "0"), 9))
		refused, _ := hubtest.Want[*amqpwire.Attach](p)
		require.Nil(t, refused.Source)
		require.Nil(t, refused.Target)
		detach, _ := hubtest.Want[*amqpwire.Detach](p)
		require.Equal(t, amqpwire.NotFound, detach.Error.Condition)
	})
}

// epoch returns the options of a reader with an epoch.
func epoch(n int64, name string) *amqp.ReceiverOptions {
	return &amqp.ReceiverOptions{Properties: map[string]any{"com.microsoft:epoch": n,
		"com.microsoft:receiver-name": name}}
}

func TestReaderWithAnEpochExcludesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		old, err := c.reader("", nil)
		require.NoError(t, err)
		synctest.Wait() // go-amqp grants the credit in the background
		first, err := c.reader("", epoch(1, "first"))
		require.NoError(t, err)
		c.bodies(old, 1) // was sent before
		_, err = old.Receive(hubtest.Soon(t), nil)
		require.Equal(t, "amqp:link:stolen", hubtest.Condition(t, err))
		require.ErrorContains(t, err, "New receiver 'first' with higher epoch of '1' is created")

		// The losers are attached before they are detached: clients know the loss only by that.
		for _, o := range []*amqp.ReceiverOptions{nil, epoch(0, "second")} {
			lost, err := c.reader("", o)
			require.NoError(t, err)
			_, err = lost.Receive(hubtest.Soon(t), nil)
			require.Equal(t, "amqp:link:stolen", hubtest.Condition(t, err))
		}
		require.Equal(t, []string{"first"}, c.bodies(first, 1))
		require.NoError(t, first.Close(t.Context()))
		again, err := c.reader("", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"first"}, c.bodies(again, 1))
	})
}

func TestSixReadersOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		for range 5 {
			_, err := c.reader("", nil)
			require.NoError(t, err)
		}
		_, err := c.reader("", nil)
		require.Equal(t, "amqp:resource-limit-exceeded", hubtest.Condition(t, err))
		require.NoError(t, c.Conn.Close())
		synctest.Wait()
		c.Peer = loginService(t, c.hub, c.policy)
		_, err = c.reader("", nil)
		require.NoError(t, err)
	})
}

func TestCreditOfEventReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		c.send("b", "c", "d", "e")
		r, err := c.reader("", &amqp.ReceiverOptions{Credit: -1})
		require.NoError(t, err)
		none(t, r)
		require.NoError(t, r.IssueCredit(2))
		require.Equal(t, []string{"first", "b"}, c.bodies(r, 2))
		none(t, r)
		require.NoError(t, r.IssueCredit(10))
		synctest.Wait()
		require.NoError(t, r.DrainCredit(hubtest.Soon(t), nil))
		require.Equal(t, []string{"c", "d", "e"}, c.bodies(r, 3))
		c.send("f")
		none(t, r)
		require.NoError(t, r.IssueCredit(1))
		require.Equal(t, []string{"f"}, c.bodies(r, 1))
	})
}

func TestSettlementOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		var many []string
		for i := range 700 {
			many = append(many, fmt.Sprint(i))
		}
		c.send(many...)
		// Nobody settles: events come settled, so that the credit goes on.
		r, err := c.reader("x-opt-sequence-number > '0'", nil)
		require.NoError(t, err)
		require.Equal(t, many, c.bodies(r, len(many)))
		// A client that insists settles each.
		r, err = c.reader("x-opt-sequence-number > '0'",
			&amqp.ReceiverOptions{RequestedSenderSettleMode: amqp.SenderSettleModeUnsettled.Ptr(), Credit: 10})
		require.NoError(t, err)
		for _, want := range many {
			m, err := r.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err)
			require.Equal(t, want, string(m.GetData()))
			require.NoError(t, r.AcceptMessage(t.Context(), m))
		}
	})
}

func TestEventsAreForgottenWithTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, &testbroker.Options{Keep: 3})
		other := c.elsewhere()
		c.send("b", "c", "d")
		s := c.describe(c.number)
		begin, last := s["begin_sequence_number"].(int64), s["last_enqueued_sequence_number"].(int64)
		require.Positive(t, begin)
		require.Equal(t, begin+2, last)
		r, err := c.reader("x-opt-sequence-number >= '0'", nil)
		require.NoError(t, err)
		require.Equal(t, []string{"b", "c", "d"}, c.bodies(r, 3))
		other.send("x")
		require.Equal(t, begin+1, c.describe(c.number)["begin_sequence_number"], "pushed out by another partition")
	})
}

// elsewhere returns a device in another partition than dev-1.
func (c *eventsCase) elsewhere() *eventsCase {
	c.t.Helper()
	for i := range 100 {
		d, err := c.hub.AddDevice(fmt.Sprint("other-", i))
		require.NoError(c.t, err)
		other := *c
		other.device = hubtest.LoginAMQP(c.t, c.hub, d).Telemetry(d)
		before := c.describe(c.number)["last_enqueued_sequence_number"]
		other.send("where?")
		if before == c.describe(c.number)["last_enqueued_sequence_number"] {
			return &other
		}
	}
	c.t.Fatal("all devices are in one partition")
	return nil
}

func TestResetBeginsTheEventsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		r, err := c.reader("", nil)
		require.NoError(t, err)
		c.bodies(r, 1)
		c.hub.Reset()
		_, err = r.Receive(hubtest.Soon(t), nil)
		require.Error(t, err)
		c.Peer = loginService(t, c.hub, c.policy)
		require.Equal(t, true, c.describe(c.number)["is_partition_empty"])
	})
}

func TestEventOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]testbroker.EventOptions{
		"EventOptions.EntityPath":                   {EntityPath: "a/b"},
		"EventOptions.Partitions: 33, want 1 to 32": {Partitions: 33},
		"EventOptions.Partitions: -1":               {Partitions: -1},
		"EventOptions.ConsumerGroups: \"a b\"":      {ConsumerGroups: []string{"a b"}},
		"\"A\" occurs twice":                        {ConsumerGroups: []string{"a", "A"}},
		"21 names":                                  {ConsumerGroups: make([]string, 21)},
		"no such source: \"all\"":                   {Sources: []hubdata.EventSource{"all"}},
	} {
		_, err := testbroker.New(&testbroker.Options{Events: o})
		require.ErrorContains(t, err, want)
	}
	h, err := testbroker.New(&testbroker.Options{HostName: "a.b", Events: testbroker.EventOptions{Partitions: 1,
		ConsumerGroups: []string{"$default", "second"}, EntityPath: "own-name"}})
	require.NoError(t, err)
	p := hubtest.AddPolicy(t, h, "p", hubdata.RightServiceConnect)
	want := "Endpoint=sb://a.b:5671/;SharedAccessKeyName=p;SharedAccessKey=" + p.PrimaryKey + ";EntityPath=own-name"
	require.Equal(t, want, h.EventsConnectionString(p, "a.b:5671", false))
	require.Equal(t, want+";UseDevelopmentEmulator=true", h.EventsConnectionString(p, "a.b:5671", true))
	require.NoError(t, h.Close())
}

func TestReaderIsNoRefusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused []string
		c := newEvents(t, &testbroker.Options{OnEvent: func(e event.Event) {
			if e.Kind == event.Refused {
				refused = append(refused, e.String())
			}
		}})
		_, err := c.reader("", nil)
		require.NoError(t, err)
		_, err = c.reader("x-opt-offset > '1:1:2'", nil)
		require.Error(t, err)
		require.NoError(t, c.Conn.Close())
		synctest.Wait()
		require.Len(t, refused, 1)
		require.Contains(t, refused[0], "hub/ConsumerGroups/$Default/Partitions/"+c.number)
	})
}

// The first of several properties with the same name counts, however many a device sends.
func TestPropertiesOfAnEventAreUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEvents(t, nil)
		d, err := c.hub.Device("dev-1")
		require.NoError(t, err)
		w := hubtest.Login(t, c.hub, d)
		for i, n := range []int{3, 6000} {
			topic := hubtest.Events
			want := make(map[string]any)
			for j := range n {
				topic += fmt.Sprintf("p%d=%d&", j, j)
				want[fmt.Sprint("p", j)] = strconv.Itoa(j)
			}
			w.Publish(uint16(i+1), topic+"p0=again&p1=again", "many")
			require.Equal(t, uint16(i+1), w.Acked())
			r, err := c.reader(fmt.Sprintf("x-opt-sequence-number > '%d'", i), nil)
			require.NoError(t, err)
			m, err := r.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err)
			require.Equal(t, want, m.ApplicationProperties)
		}
	})
}
