package httpfront_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestBatchOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		p.Send(`[
			{"body":"eyJ0IjoyMX0=","base64Encoded":true,
				"properties":{"iothub-messageid":"m-1","dt-subject":"thermostat1","iothub-app-Level":"low","IoTHub-App-a":"b"}},
			{"body":"plain text €","base64Encoded":false},
			{"body":"eyJ0IjoyMn0=","more":[1]}
		]`, "Content-Type", hubtest.BatchType+"; charset=utf-8", "iothub-to", "/devices/dev-1/messages/events")
		log := h.Messages()
		require.Len(t, log, 3)
		require.Equal(t, "m-1", log[0].MessageID)
		require.Equal(t, "thermostat1", log[0].Component)
		require.Empty(t, log[1].Component)
		require.Equal(t, []hubdata.Property{{Name: "a", Value: "b"}, {Name: "Level", Value: "low"}}, log[0].Properties)
		require.Equal(t, `{"t":21}`, string(log[0].Body))
		require.Equal(t, "plain text €", string(log[1].Body))
		require.Equal(t, `{"t":22}`, string(log[2].Body))

		p.Send(`[{"body":"x"}]`, "Content-Type", "application/json")
		require.Equal(t, `[{"body":"x"}]`, string(h.Messages()[3].Body), "the content type tells what it is")
	})
}

func TestBatchIsAllOrNothing(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		const good = `{"body":"eA=="}`
		for name, c := range map[string]struct {
			body string
			code int
		}{
			"no JSON":        {`[` + good, 400012},
			"behind the end": {`[` + good + `]]`, 400012},
			"object":         {good, 400012},
			"null":           {`null`, 400004},
			"nothing":        {``, 400012},
			"empty":          {`[]`, 400004},
			"element null":   {`[` + good + `,null]`, 400026},
			"body missing":   {`[` + good + `,{"properties":{}}]`, 400026},
			"body not text":  {`[` + good + `,{"body":1}]`, 400012},
			"bad base64":     {`[` + good + `,{"body":"a"}]`, 400006},
			"text as base64": {`[` + good + `,{"body":"plain text","base64Encoded":true}]`, 400006},
			"value not text": {`[` + good + `,{"body":"","properties":{"iothub-app-a":1}}]`, 400012},
			"value null":     {`[` + good + `,{"body":"","properties":{"iothub-app-a":null}}]`, 400004},
			"bad name":       {`[` + good + `,{"body":"","properties":{"iothub-app-a b":"c"}}]`, 400004},
			"no name":        {`[` + good + `,{"body":"","properties":{"iothub-app-":"c"}}]`, 400004},
			"twice": {`[` + good + `,{"body":"","properties":{"iothub-messageid":"1","IOTHUB-messageid":"2"}}]`,
				400004},
			"two subjects":    {`[` + good + `,{"body":"","properties":{"dt-subject":"a","DT-subject":"b"}}]`, 400004},
			"subject no text": {`[` + good + `,{"body":"","properties":{"dt-subject":1}}]`, 400012},
			"long message id": {`[` + good + `,{"body":"","properties":{"iothub-messageid":"` + strings.Repeat("m", 129) +
				`"}}]`, 400004},
			"not UTF-8": {"[{\"body\":\"\xff\",\"base64Encoded\":false}]", 400012},
			"too many":  {`[` + strings.Repeat(good+`,`, 500) + good + `]`, 400004},
			"too large": {`[` + strings.Repeat(" ", hubdata.MaxMessage) + good + `]`, 413001},
			"deep":      {strings.Repeat(`[`, 100000), 400012},
		} {
			t.Log(name)
			p.Post("/devices/dev-1/messages/events"+hubtest.Version, c.body, "Content-Type",
				hubtest.BatchType).Refused(t, c.code)
		}
		require.Zero(t, h.Len())
		p.Send(`[`+strings.Repeat(good+`,`, 499)+good+`]`, "Content-Type", hubtest.BatchType)
		require.Equal(t, 500, h.Len())
	})
}

func TestStrictValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{HTTP: testbroker.HTTPOptions{StrictValues: true}})
		p := hubtest.OverHTTP(t, h, d)
		p.Send("x", "iothub-app-a", "b!#$%&'*+-.^_`|~9", "iothub-app-empty", "")
		p.Post("/devices/dev-1/messages/events"+hubtest.Version, "x", "iothub-app-a", "b c").Refused(t, 400004)
	})
}

// A repeated message id with another body is a conflict, also across protocols.
func TestConflictOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		p.Send("one", "iothub-messageid", "1")
		p.Send("one", "iothub-messageid", "1")
		require.Empty(t, h.Conflicts())
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.Events+"%24.mid=1", "two")
		w.Acked()
		require.Len(t, h.Conflicts(), 1)
		require.Equal(t, hubdata.HTTP, h.Conflicts()[0].First.Protocol)
	})
}
