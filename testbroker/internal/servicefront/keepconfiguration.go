package servicefront

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// A configurationRecord is a configuration in the form that back ends send, and what the hub has
// added.
type configurationRecord struct {
	Document         configurationDocument
	Created, Updated time.Time
	Changes          uint64
}

// AddTables adds the tables of what only back ends write. It is called before the hub's Restore.
func AddTables(h *hub.Hub) {
	h.Records.Add(backend.TableConfigurations,
		func(id string) []byte {
			c, err := backend.Of(h).Configuration(id)
			if err != nil {
				return nil // it was removed
			}
			r := configurationRecord{Created: c.Created, Updated: c.Updated, Changes: c.Changes,
				Document: configurationDocument{ID: c.ID, SchemaVersion: c.SchemaVersion, Labels: c.Labels, Content: c.Raw,
					TargetCondition: c.TargetCondition, Priority: c.Priority, Metrics: metrics{Queries: c.Metrics}}}
			text, err := json.Marshal(r)
			if err != nil {
				panic("testbroker: " + err.Error()) // all of it came as JSON
			}
			return text
		},
		func(id string, record []byte) error { return restoreConfiguration(h, id, record) },
	)
}

func restoreConfiguration(h *hub.Hub, id string, record []byte) error {
	var r configurationRecord
	if err := web.Decode(record, &r); err != nil {
		return err
	}
	c, err := r.Document.read(h)
	if err != nil {
		return err
	}
	if c.ID != id {
		return errors.New("it is that of another configuration")
	}
	c.Created, c.Updated, c.Changes = r.Created, r.Updated, r.Changes
	backend.Of(h).RestoreConfiguration(c)
	return nil
}
