package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// login are the options of a device, and its user name and password. Without a user name it is
// anonymous.
type login struct {
	amqp.Options
	user, password string
}

// openAMQP creates and opens a device client over AMQP, and closes it at the end of the test.
func openAMQP(t testing.TB, a login, d device.Options) *device.Client {
	t.Helper()
	c := createAMQP(t, a, d)
	require.NoError(t, c.Open(soon(t)))
	return c
}

func createAMQP(t testing.TB, a login, d device.Options) *device.Client {
	t.Helper()
	if d.RetryPolicy == nil {
		d.RetryPolicy = fastPolicy{}
	}
	if d.PacedPolicy == nil {
		d.PacedPolicy = fastPolicy{}
	}
	creds := &transport.Credentials{Host: hostName, DeviceID: deviceID, UserName: a.user}
	if a.user != "" {
		creds.Token = transport.FixedToken(a.password)
	}
	c, err := device.New(creds, amqp.New(&a.Options), &d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// numbered returns message i of a series, with properties that are easily corrupted.
func numbered(i int) *transport.Message {
	return &transport.Message{
		ID: fmt.Sprintf("m-%04d", i), CorrelationID: "c/" + fmt.Sprint(i%3), ContentType: "application/json",
		ContentEncoding: "utf-8", Component: "thermostat1",
		Properties: []transport.Property{{Name: "Grad °C", Value: "21.5 & mehr/?#+"}, {Name: "empty", Value: ""},
			{Name: "n", Value: fmt.Sprint(i)}},
		Body: fmt.Appendf(nil, "%04d", i),
	}
}

// requireNumbered checks a message of numbered that a peer received.
func requireNumbered(t testing.TB, e event) {
	t.Helper()
	var i int
	_, err := fmt.Sscanf(e.Payload, "%04d", &i)
	require.NoError(t, err, "%+v", e)
	require.Equal(t, fmt.Sprintf("m-%04d", i), e.ID)
	require.Equal(t, "c/"+fmt.Sprint(i%3), e.Correlation)
	require.Equal(t, "application/json utf-8", e.ContentType+" "+e.ContentEncoding)
	require.Equal(t, map[string]string{"Grad °C": "21.5 & mehr/?#+", "empty": "", "n": fmt.Sprint(i),
		"dt-subject": "thermostat1"}, e.Properties)
}

// sendNumbered sends messages, at most a window at a time, and waits for the result of each. It
// calls after with the number of results so far.
func sendNumbered(t testing.TB, c *device.Client, messages, window int, after func(done int)) {
	t.Helper()
	ring := make([]device.Receipt, window)
	for i := range messages + window {
		receipt := &ring[i%window]
		if done := i - window; done >= 0 && done < messages {
			require.NoError(t, receipt.Wait(soon(t)), "message %d", done)
			after(done + 1)
		}
		if i < messages {
			require.NoError(t, c.Enqueue(soon(t), numbered(i), receipt))
		}
	}
}

// tally records the arrivals of a numbered series.
type tally struct {
	copies map[string]int
	next   int // first copies of all messages below this have arrived in order
}

// add counts an arrival and reports whether it is a first copy out of order.
func (y *tally) add(payload string) (early bool) {
	if y.copies == nil {
		y.copies = make(map[string]int)
	}
	y.copies[payload]++
	if y.copies[payload] > 1 {
		return false
	}
	early = payload != fmt.Sprintf("%04d", y.next)
	y.next++
	return early
}

// lost returns the messages of the series that have not arrived.
func (y *tally) lost(messages int) (lost []int) {
	for i := range messages {
		if y.copies[fmt.Sprintf("%04d", i)] == 0 {
			lost = append(lost, i)
		}
	}
	return lost
}

func (y *tally) duplicates() int {
	n := 0
	for _, copies := range y.copies {
		n += copies - 1
	}
	return n
}

// judge is a handler of cloud-to-device messages that does what the body says: accept, release (the
// first time), reject.
type judge struct {
	calls chan string // body, and the number of its deliveries so far
	times map[string]int
}

func newJudge() *judge { return &judge{make(chan string, 1000), make(map[string]int)} }

func (j *judge) handle(_ context.Context, m *transport.Message) error {
	body := string(m.Body)
	j.times[body]++
	j.calls <- fmt.Sprintf("%s %d", body, j.times[body])
	switch {
	case strings.HasPrefix(body, "reject"):
		return device.ErrReject
	case strings.HasPrefix(body, "release") && j.times[body] == 1:
		return errors.New("not now")
	}
	return nil
}

// next returns the next cloud-to-device message.
func (j *judge) next(t testing.TB) string {
	t.Helper()
	select {
	case s := <-j.calls:
		return s
	case <-time.After(waitLimit):
		t.Fatal("no message")
		return ""
	}
}
