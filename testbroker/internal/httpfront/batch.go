package httpfront

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// batchType is the content type of a batch. With another content type, a JSON array is the body of
// a single message.
const batchType = "application/vnd.microsoft.iothub.json"

// A batchEntry is a message of a batch. Its properties are named like the headers.
type batchEntry struct {
	Body       *string            `json:"body"`
	Base64     *bool              `json:"base64Encoded"` // nil = true, because some clients omit it
	Properties map[string]*string `json:"properties"`
}

// readBatch parses the messages of a batch: all, or none if one is invalid.
func readBatch(q *web.Request, text []byte) ([]hubdata.Message, *web.Error) {
	if !utf8.Valid(text) {
		return nil, web.Errorf(400012, "batch is not UTF-8")
	}
	var entries []batchEntry
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, web.Errorf(400012, "batch: %v", err)
	}
	if len(entries) == 0 || len(entries) > telemetry.MaxBatch {
		return nil, web.Errorf(400004, "batch of %d messages, 1 to %d are allowed", len(entries), telemetry.MaxBatch)
	}
	all := make([]hubdata.Message, len(entries))
	total := 0
	for i, e := range entries {
		body, bad := e.body()
		if bad == nil {
			all[i], bad = entry(q, e, body)
		}
		if bad != nil {
			bad.Text = fmt.Sprintf("message %d of the batch: %s", i+1, bad.Text)
			return nil, bad
		}
		if total += telemetry.SizeOf(&all[i]); total > hubdata.MaxMessage {
			return nil, web.Errorf(413001, "batch of more than %d bytes", hubdata.MaxMessage)
		}
	}
	return all, nil
}

func entry(q *web.Request, e batchEntry, body []byte) (hubdata.Message, *web.Error) {
	properties := make(map[string]string, len(e.Properties))
	for name, value := range e.Properties {
		if value == nil {
			return hubdata.Message{}, web.Errorf(400004, "property %q is null", name)
		}
		properties[name] = *value
	}
	return message(q, body, properties)
}

func (e batchEntry) body() ([]byte, *web.Error) {
	switch {
	case e.Body == nil:
		return nil, web.Errorf(400026, "there is no body")
	case e.Base64 != nil && !*e.Base64:
		return []byte(*e.Body), nil
	}
	body, err := base64.StdEncoding.DecodeString(*e.Body)
	if err != nil {
		return nil, web.Errorf(400006, "body: %v", err)
	}
	return body, nil
}
