package dpsmqtt_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func register(t *testing.T, o *netopt.Options, opt *provisioning.Options) (*provisioning.Assignment, error) {
	t.Helper()
	sign, err := transport.SharedKey("icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA=")
	require.NoError(t, err)
	c, err := provisioning.New(&provisioning.Identity{Endpoint: "dps.example.test", IDScope: "0ne00ABCDEF",
		RegistrationID: "reg-0001", Sign: sign}, dpsmqtt.New(o), opt)
	require.NoError(t, err)
	return c.Register(t.Context())
}

func TestPackets(t *testing.T) {
	const res = "$dps/registrations/res/"
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		near, far := memconn.Pair("dev-1:1", "dps.example.test:1883")
		l := testkit.NewMQTTLink(t, far)
		answer := func(topic, body string) {
			l.Send(testkit.MQTTBytes(0x32, testkit.MQTTText(topic), "\x00\x4d", body)...)
			require.Equal(t, "\x00\x4d", string(l.Expect(0x40).Body), "answers are acknowledged")
		}
		var device sync.WaitGroup
		device.Go(func() {
			a, err := register(t, &netopt.Options{Plaintext: true, ProductInfo: "shelf/1",
				Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }},
				&provisioning.Options{Policy: retrypolicy.NoRetry{}})
			if assert.NoError(t, err) {
				assert.Equal(t, "dev-1", a.DeviceID)
			}
		})
		defer device.Wait()
		defer far.Close()
		user := "0ne00ABCDEF/registrations/reg-0001/api-version=2019-03-31&ClientVersion=Hubline%20shelf%2F1"
		_, login, _ := strings.Cut(string(l.Expect(0x10).Body[10:]), testkit.MQTTText("reg-0001")+testkit.MQTTText(user))
		require.Contains(t, login, "SharedAccessSignature sr=0ne00ABCDEF%2Fregistrations%2Freg-0001&sig=")
		l.Send(0x20, 2, 0, 0)
		filter := l.Expect(0x82).Body
		l.Send(0x90, 3, filter[0], filter[1], 1)

		put := l.Expect(0x32) // QoS 1
		require.Equal(t, "$dps/registrations/PUT/iotdps-register/?$rid=2", put.Topic())
		require.Equal(t, `{"registrationId":"reg-0001"}`, put.Rest()[2:])
		l.Send(0x40, 2, put.Rest()[0], put.Rest()[1])
		answer(res+"202/?$rid=2&retry-after=3", `{"operationId":"4.d0.a/b c","status":"assigning"}`)
		began := time.Now()
		get := l.Expect(0x32)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, "$dps/registrations/GET/iotdps-get-operationstatus/?$rid=3&operationId=4.d0.a%2Fb%20c", get.Topic())
		require.Empty(t, get.Rest()[2:])
		l.Send(0x40, 2, get.Rest()[0], get.Rest()[1])
		answer(res+"200/?$rid=3", `{"operationId":"op-1","status":"assigned","registrationState":{`+
			`"assignedHub":"hub1.example.test","deviceId":"dev-1","status":"assigned"}}`)
		device.Wait()
		synctest.Wait() // for goroutines that are about to end
		require.Equal(t, before, testkit.Goroutines())
	})
}

// A service that stops reading holds an exchange no longer than the time limit, and leaves nothing
// behind.
func TestAServiceThatStopsReading(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		before := testkit.Goroutines()
		near, far := net.Pipe() // no buffer: a write waits for the reader
		go func() {
			buf := make([]byte, 1024)
			_, _ = far.Read(buf)
			_, _ = far.Write([]byte{0x20, 2, 0, 0})
			_, _ = far.Read(buf)
			_, _ = far.Write([]byte{0x90, 3, 0, 1, 1})
		}()
		began := time.Now()
		_, err := register(t, &netopt.Options{Plaintext: true,
			Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil }},
			&provisioning.Options{Policy: retrypolicy.NoRetry{}, RequestTimeout: 5 * time.Second,
				Payload: []byte(`"` + strings.Repeat("x", 60<<10) + `"`)})
		require.Equal(t, transport.Timeout, transport.KindOf(errors.Unwrap(errors.Unwrap(err))), "%v", err)
		require.LessOrEqual(t, time.Since(began), 6*time.Second)
		_ = far.Close()
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines())
	})
}

func TestALongProductInfoIsInvalid(t *testing.T) {
	_, err := register(t, &netopt.Options{ProductInfo: strings.Repeat("x", 5000)},
		&provisioning.Options{Policy: retrypolicy.NoRetry{}})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "ProductInfo")
}
