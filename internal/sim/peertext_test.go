package sim_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// Texts of a hub reach errors without the secrets that they repeat and without control characters,
// over every transport.
func TestTextsOfTheHubHaveNeitherSecretsNorControlCharacters(t *testing.T) {
	const secret = "VGhpc0lzU2VjcmV0aGVyZQ"
	const evil = "no\x1b[31m\r\nfor sig=" + secret + "&se=1 {\"password\":\"" + secret + "\"} \u202e end"
	status := []byte("HTTP/1.1 4\x1b[3 sig=" + secret + "\r\n\r\n")
	faults := map[hubdata.Protocol][]fault.Fault{
		hubdata.MQTT: {{Kind: fault.RefuseTwin, Status: 400}, {Kind: fault.GarbageOnConnect,
			Bytes: []byte(evil)}, {Kind: fault.GarbageOnPublish, Bytes: []byte(evil)}},
		hubdata.AMQP: {
			{Kind: fault.RefuseAttach}, {Kind: fault.RejectMessage}, {Kind: fault.CloseOnMessage},
			{Kind: fault.EndOnMessage},
			{Kind: fault.DetachOnMessage}, {Kind: fault.RefuseTwin, Status: 400}, {Kind: fault.GarbageOnConnect,
				Bytes: []byte(evil)},
			{Kind: fault.RejectMessage, Condition: "sig=" + secret}, {Kind: fault.CloseOnMessage,
				Condition: "x:\x1bsig=" + secret},
		},
		hubdata.HTTP: {{Kind: fault.AnswerStatus, Statuses: []int{400}}, {Kind: fault.RefuseConnect,
			Status: 401}, {Kind: fault.GarbageAnswer, Bytes: status}},
	}
	five := []fault.Fault{
		{Kind: fault.RefuseConnect, ServerReference: evil}, {Kind: fault.RefusePublish},
		{Kind: fault.DisconnectOnPublish}, {Kind: fault.DisconnectWhileIdle}, {Kind: fault.RefuseAuth},
	}
	for _, with := range engines {
		all := faults[with.protocol]
		if with.five {
			all = append(five, all...)
		}
		for _, fault := range all {
			if !with.has(fault.Kind) || with.next && fault.Status != 0 { // no status there
				continue
			}
			fault.Description, fault.Times = evil, -1
			testkit.Run(t, with.name+"/"+fault.Kind.String()+strings.ToValidUTF8(fault.Condition, ""), func(t *testing.T) {
				hub, creds := with.openHub(t)
				injected := hub.Inject(fault)
				defer injected.Remove()

				var mu sync.Mutex
				var seen []error
				see := func(err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						seen = append(seen, err)
					}
				}
				c, err := device.New(creds, with.make(creds, &way{Plaintext: true, Dial: hub.Dial(ports[with.protocol].plain)}),
					&device.Options{
						OnStatus: func(s device.Status) { see(s.Err) },
						Trace:    &device.Trace{SessionEnd: func(err error, _ time.Duration) { see(err) }},
					})
				require.NoError(t, err)
				require.NoError(t, c.Start())
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				see(c.Send(ctx, &transport.Message{Body: []byte("x")}))
				if with.twins {
					_, err := c.GetTwin(ctx)
					see(err)
				}
				cancel()
				time.Sleep(time.Second) // the hub may end the connection only once it is idle
				require.NoError(t, c.Close())

				require.NotEmpty(t, seen)
				said := false
				for _, err := range seen {
					for ; err != nil; err = errors.Unwrap(err) {
						said = said || strings.Contains(err.Error(), `\x1b`) || strings.Contains(err.Error(), `\u001b`) ||
							fault.Bytes != nil
						if _, ours := err.(*transport.Error); !ours {
							continue
						}
						require.NotContains(t, err.Error(), secret)
						for _, r := range err.Error() {
							require.True(t, unicode.IsPrint(r), "%q in %q", r, err)
						}
					}
				}
				require.True(t, said || fault.Condition != "", "the hub's text is shown: %v", seen)
			})
		}
	}
}
