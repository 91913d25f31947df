package updates

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// The tables of the service.
const (
	tableKeys        = "keys"        // one record; the keys follow from its seed
	tableUpdates     = "updates"     // by id
	tableDeployments = "deployments" // by workflow id
	tableDevices     = "devices"     // by folded id
)

type keysRecord struct {
	Seed uint64
	Ring ring
}

type releaseRecord struct {
	Update  updatedata.Update
	Created time.Time
}

type deploymentRecord struct {
	Data  updatedata.Deployment
	Order uint64
	Retry string `json:",omitempty"`
}

type deviceRecord struct {
	Data updatedata.Device
	ETag string
}

// addTables adds the tables of the service. Deployments and references are linked by link, when all
// records are there.
func (s *Service) addTables() {
	s.Records.Add(tableKeys, func(string) []byte {
		return keep.MustJSON(keysRecord{s.seed, s.Ring()})
	}, restore(func(r keysRecord) error {
		if len(r.Ring.Roots) < factoryRoots || len(r.Ring.Signing) == 0 {
			return keep.ErrRecord
		}
		s.seed, s.ring = r.Seed, r.Ring
		return nil
	}))
	s.Records.Add(tableUpdates, func(key string) []byte {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, r := range s.releases {
			if id.String() == key {
				return keep.MustJSON(releaseRecord{r.update, r.created})
			}
		}
		return nil
	}, restore(func(r releaseRecord) error {
		s.restored.releases = append(s.restored.releases, r)
		return nil
	}))
	s.Records.Add(tableDeployments, func(key string) []byte {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := s.deploymentLocked(key)
		if d == nil {
			return nil
		}
		return keep.MustJSON(deploymentRecord{d.data, d.order, d.retry})
	}, restore(func(r deploymentRecord) error {
		s.restored.deployments = append(s.restored.deployments, r)
		return nil
	}))
	s.Records.Add(tableDevices, func(key string) []byte {
		s.mu.Lock()
		defer s.mu.Unlock()
		d := s.devices[key]
		if d == nil {
			return nil
		}
		return keep.MustJSON(deviceRecord{d.data, d.etag})
	}, restore(func(r deviceRecord) error {
		s.devices[fold(r.Data.ID)] = &device{r.Data, r.ETag}
		return nil
	}))
}

// restore returns a function that decodes a record.
func restore[T any](take func(T) error) func(string, []byte) error {
	return func(_ string, record []byte) error {
		var v T
		if json.Unmarshal(record, &v) != nil {
			return keep.ErrRecord
		}
		return take(v)
	}
}

// load takes the records of an earlier run, and starts to save changes.
func (s *Service) load() error {
	s.addTables()
	if err := s.Records.Load(); err != nil {
		return err
	}
	if err := s.link(); err != nil {
		return fmt.Errorf("testbroker: UpdatesOptions.Store: %w", err)
	}
	s.Records.Start()
	s.Records.Touch(tableKeys, "")
	return nil
}

// link publishes the restored updates, those without references first, and then deploys them. It
// drops an update or deployment that refers to a missing update: a kill can leave one in the store.
func (s *Service) link() error {
	all := s.restored
	slices.SortStableFunc(all.releases, func(a, b releaseRecord) int {
		return cmp.Compare(a.Update.References(), b.Update.References())
	})
	slices.SortFunc(all.deployments, func(a, b deploymentRecord) int { return cmp.Compare(a.Order, b.Order) })
	var bad []error
	done := func(table, key string, err error) {
		if errors.Is(err, ErrNotFound) {
			s.Records.Touch(table, key) // the store drops it too
			return
		}
		bad = append(bad, err)
	}
	for _, r := range all.releases {
		err := r.Update.Check()
		if err == nil {
			err = s.publish(r.Update, r.Created)
		}
		done(tableUpdates, r.Update.ID.String(), err)
	}
	for _, d := range all.deployments {
		done(tableDeployments, d.Data.WorkflowID, s.deploy(d.Data, d.Retry))
	}
	s.restored.releases, s.restored.deployments = nil, nil
	return errors.Join(bad...)
}

// Close saves what has changed.
func (s *Service) Close() { s.Records.End() }
