package testbroker_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A memory is a Store that a test can copy at any moment, as a kill would leave it, and make fail.
type memory struct {
	mu      sync.Mutex
	records map[[2]string][]byte
	fails   error
	saves   int
}

func (m *memory) Load(each func(hubdata.Record) error) error {
	m.mu.Lock()
	var all []hubdata.Record
	for name, value := range m.records {
		all = append(all, hubdata.Record{Table: name[0], Key: name[1], Value: value})
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b hubdata.Record) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key))
	})
	for _, r := range all {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Save(changes []hubdata.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return m.fails
	}
	m.saves++
	if m.records == nil {
		m.records = make(map[[2]string][]byte)
	}
	for _, r := range changes {
		name := [2]string{r.Table, r.Key}
		switch {
		case r.Value != nil:
			m.records[name] = bytes.Clone(r.Value)
		case r.Key != "":
			delete(m.records, name)
		default:
			for other := range m.records {
				if other[0] == r.Table {
					delete(m.records, other)
				}
			}
		}
	}
	return nil
}

// killed returns the state that a kill would leave at this moment.
func (m *memory) killed() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &memory{records: make(map[[2]string][]byte)}
	for name, value := range m.records {
		c.records[name] = value
	}
	return c
}

func hubOn(t *testing.T, s testbroker.Store, o testbroker.Options) *testbroker.Hub {
	o.Store = s
	h, err := testbroker.New(&o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// shown returns records as JSON, in which times of different runs are comparable.
func shown(t *testing.T, all []hubdata.C2DRecord) string {
	text, err := json.Marshal(all)
	require.NoError(t, err)
	return string(text)
}

// Each call that changes the registry, a twin or a queue returns when the change would survive.
func TestChangesSurviveFromTheirReturnOn(t *testing.T) {
	s := &memory{}
	h := hubOn(t, s, testbroker.Options{})
	after := func(do func() error) *testbroker.Hub {
		t.Helper()
		require.NoError(t, do())
		return hubOn(t, s.killed(), testbroker.Options{})
	}
	var made hubdata.Device
	got := after(func() (err error) { made, err = h.AddDevice("dev-1"); return err })
	require.Equal(t, []hubdata.Device{made}, got.Devices())
	got = after(func() error { _, err := h.AddModule("dev-1", "cam"); return err })
	require.Equal(t, h.Devices(), got.Devices())
	got = after(func() error {
		_, err := h.AddDeviceX509("dev-2", "5F3C1D0A9B8E7F6A5D4C3B2A19080706F5E4D3C2")
		return err
	})
	require.Equal(t, h.Devices(), got.Devices())
	got = after(func() error { return h.SetKeys("dev-1", made.SecondaryKey, made.PrimaryKey) })
	require.Equal(t, h.Devices(), got.Devices())
	got = after(func() error { return h.RemoveDevice("dev-1/cam") })
	require.Equal(t, h.Devices(), got.Devices())
	var policy hubdata.Policy
	got = after(func() (err error) { policy, err = h.AddPolicy("back", hubdata.RightAll); return err })
	kept, err := got.Policy("back")
	require.NoError(t, err)
	require.Equal(t, policy, kept)
	_, err = got.Policy("none")
	require.ErrorIs(t, err, testbroker.ErrNotFound)

	for _, change := range []func(*testbroker.Hub) error{
		func(h *testbroker.Hub) error {
			_, err := h.PatchDesired("dev-1", `{"a":{"b":1.50,"c":[1]},"d":{}}`)
			return err
		},
		func(h *testbroker.Hub) error { _, err := h.SetDesired("dev-1", `{"a":{"b":2}}`); return err },
		func(h *testbroker.Hub) error { return h.PatchTags("dev-1", `{"site":{"roof":true}}`) },
	} {
		got = after(func() error { return change(h) })
		want := hubtest.Twin(t, h, "dev-1")
		twin, err := got.Twin("dev-1")
		require.NoError(t, err)
		require.Equal(t, want, twin, "with metadata, versions and ETag")
		require.NoError(t, change(got), "a merge finds the stamps")
	}
	for i := range 3 {
		got = after(func() error { return h.SendC2D("dev-1", hubdata.C2D{MessageID: fmt.Sprint(i), Body: []byte("x")}) })
		require.Equal(t, shown(t, h.C2DLog("dev-1")), shown(t, got.C2DLog("dev-1")))
	}
	h.PurgeC2D("dev-1")
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "last"}))
	got = after(func() error { return nil })
	require.Len(t, got.C2DLog("dev-1"), 1, "the others have ended")
	require.Equal(t, 4, got.C2DLog("dev-1")[0].Sequence)
	ca := string(h.CAPEM()) // makes it
	got = after(func() error { return nil })
	require.Equal(t, ca, string(got.CAPEM()))
	h.RotateCertificate()
	got = after(func() error { return nil })
	require.NotEqual(t, ca, string(got.CAPEM()))
	require.Equal(t, string(h.CAPEM()), string(got.CAPEM()))
	require.Equal(t, h.Authorities(), got.Authorities())
	h.Reset()
	got = after(func() error { return nil })
	require.Empty(t, got.C2DLog(""))
	require.Equal(t, h.Devices(), got.Devices())
}

// A waiting message goes on after a kill. One that expires meanwhile ends.
func TestAWaitingMessageGoesOnAfterAKill(t *testing.T) {
	s := &memory{}
	h := hubOn(t, s, testbroker.Options{})
	hubtest.AddDevice(t, h, "dev-1")
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "short", Expiry: time.Now().Add(time.Hour)}))
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "long", Expiry: time.Now().Add(3 * time.Hour)}))
	late := hubOn(t, s.killed(), testbroker.Options{Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	require.NoError(t, late.WaitC2D(t.Context(), "dev-1", hubdata.C2DExpired, 1))
	require.Equal(t, 1, late.CountC2D("dev-1", hubdata.C2DEnqueued))
}

// A kill during the removal of a device leaves its twin and its messages. The next device of that
// name does not get them, and the store drops them.
func TestNobodyInheritsFromARemovedDevice(t *testing.T) {
	s := &memory{}
	h := hubOn(t, s, testbroker.Options{})
	hubtest.AddDevice(t, h, "dev-1")
	hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "old"}))
	left := s.killed()
	delete(left.records, [2]string{"devices", "dev-1"})

	h = hubOn(t, left, testbroker.Options{})
	require.Empty(t, h.C2DLog(""))
	hubtest.AddDevice(t, h, "dev-1")
	twin := hubtest.Twin(t, h, "dev-1")
	require.JSONEq(t, "{}", string(twin.Desired))
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "new"}))
	again := hubOn(t, left.killed(), testbroker.Options{}).C2DLog("")
	require.Len(t, again, 1)
	require.Equal(t, "new", again[0].C2D.MessageID)
}

// Containers, their files with all that readers get, and the account's key survive from the answer
// on. Staged blocks do not.
func TestTheStorageSurvives(t *testing.T) {
	s := &memory{}
	h := hubOn(t, s, testbroker.Options{})
	_, err := h.ContainerURL("hub", "owned", time.Hour)
	require.NoError(t, err)
	store := hubtest.NewStorage(t, h)
	const blocks = "<BlockList><Latest>AAAA</Latest><Latest>BBBB</Latest><Latest>AAAA</Latest></BlockList>"
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
	}{
		{"PUT", "/store/c-1?restype=container", "", []string{"x-ms-meta-a", "1"}, 201},
		{"PUT", "/store/c-1/a/b", "content", []string{"x-ms-blob-type", "BlockBlob", "x-ms-meta-b", "2", "Content-Type",
			"text/csv"}, 201},
		{"PUT", "/store/c-1/empty", "", []string{"x-ms-blob-type", "BlockBlob"}, 201},
		{"PUT", "/store/c-1/empty?comp=metadata", "", []string{"x-ms-meta-offset", "7"}, 200},
		{"PUT", "/store/c-1/l?comp=block&blockid=AAAA", "first", nil, 201},
		{"PUT", "/store/c-1/l?comp=block&blockid=BBBB", "second", nil, 201},
		{"PUT", "/store/c-1/l?comp=blocklist", blocks, nil, 201},
		{"PUT", "/store/c-1/l?comp=block&blockid=CCCC", "third", nil, 201},
		{"DELETE", "/store/c-1/a/b", "", nil, 202},
		{"PUT", "/store/c-2?restype=container", "", nil, 201},
		{"PUT", "/store/c-2/x", "x", []string{"x-ms-blob-type", "BlockBlob"}, 201},
		{"DELETE", "/store/c-2?restype=container", "", nil, 202},
	} {
		r := store.Request(c.method, c.path, c.body, c.header...)
		require.Equal(t, c.status, r.StatusCode, "%s %s: %s", c.method, c.path, r.Text)
		got := hubOn(t, s.killed(), testbroker.Options{})
		require.Equal(t, h.StorageConnectionString("hub"), got.StorageConnectionString("hub"), "with the key")
		require.Equal(t, allOf(store), allOf(hubtest.NewStorage(t, got)))
	}
	got := hubtest.NewStorage(t, hubOn(t, s.killed(), testbroker.Options{}))
	require.Equal(t, "firstsecondfirst", got.Request("GET", "/store/c-1/l", "").Text)
	got.Request("PUT", "/store/c-1/l?comp=blocklist", "<BlockList><Latest>CCCC</Latest></BlockList>").StoreRefused(t, 400,
		"InvalidBlockList")
	r := got.Request("PUT", "/store/c-1/l?comp=blocklist", "<BlockList><Committed>BBBB</Committed></BlockList>")
	require.Equal(t, 201, r.StatusCode, r.Text)
	require.Equal(t, "second", got.Request("GET", "/store/c-1/l", "").Text, "blocks of a file stay blocks")
	h.Reset()
	after := hubOn(t, s.killed(), testbroker.Options{})
	require.Equal(t, allOf(store), allOf(hubtest.NewStorage(t, after)))
	after.Reset()
	require.Contains(t, allOf(hubtest.NewStorage(t, after)), "<Name>owned</Name>")
}

// allOf returns the lists of all containers and files, and the files.
func allOf(s *hubtest.Storage) (all string) {
	for _, path := range []string{"?comp=list&include=metadata", "/c-1?restype=container&comp=list&include=metadata",
		"/c-2?restype=container&comp=list", "/owned?restype=container&comp=list", "/c-1/a/b", "/c-1/empty", "/c-1/l"} {
		r := s.Request("GET", "/store"+path, "")
		body, _, _ := strings.Cut(r.Text, "RequestId") // of a refusal
		all += fmt.Sprintln(path, r.Header.Get("Content-Type"), body)
	}
	return all
}

// Configurations survive, with their ETags, and go on writing the twins of their target.
func TestConfigurationsSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memory{}
		h := hubOn(t, s, testbroker.Options{})
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		for _, id := range []string{"ulm", "gone"} {
			hubtest.Configure(p, id, `{"id":"`+id+`","labels":{"by":"me"},"priority":10,"targetCondition":"tags.site = 'Ulm'",
				"content":{"deviceContent":{"properties.desired.x":1.50}},
				"metrics":{"queries":{"fast":"SELECT deviceId FROM devices WHERE properties.desired.x = 7"}}}`)
		}
		require.Equal(t, 204, p.Do("DELETE", "/configurations/gone"+hubtest.Version, "").StatusCode)
		made := p.Do("GET", "/configurations"+hubtest.Version, "").Text
		s = s.killed()
		h = hubOn(t, s, testbroker.Options{})
		p = hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, p.Token)
		require.Equal(t, made, p.Do("GET", "/configurations"+hubtest.Version, "").Text)
		hubtest.AddDevice(t, h, "dev-1")
		require.NoError(t, h.PatchTags("dev-1", `{"site":"Ulm"}`))
		hubtest.Applied()
		require.JSONEq(t, `{"x":1.50}`, hubtest.Desired(t, h, "dev-1"))
		twin := hubtest.Twin(t, h, "dev-1")
		again := hubtest.Configure(p, "next", `{"id":"next"}`)
		require.NotContains(t, made, again["etag"].(string))

		// A configuration that has been applied writes nothing again after a start.
		h = hubOn(t, s.killed(), testbroker.Options{})
		hubtest.Applied()
		got := hubtest.Twin(t, h, "dev-1")
		require.Equal(t, twin, got)
	})
}

// A tag of an earlier run is not given again, even if the clock was set back.
func TestTagsDifferFromThoseOfAnEarlierRun(t *testing.T) {
	s := &memory{}
	store := hubtest.NewStorage(t, hubOn(t, s, testbroker.Options{}))
	require.Equal(t, 201, store.Request("PUT", "/store/c-1?restype=container", "").StatusCode)
	tag := store.Put("a", "x").Header.Get("ETag")
	back := func() time.Time { return time.Now().Add(-time.Minute) }
	store = hubtest.NewStorage(t, hubOn(t, s.killed(), testbroker.Options{Now: back}))
	again := store.Put("a", "y").Header.Get("ETag")
	require.Greater(t, again, tag)
	r := store.Request("PUT", "/store/c-1/a", "z", "x-ms-blob-type", "BlockBlob", "If-Match", tag)
	r.StoreRefused(t, 412, "ConditionNotMet")
}

// Enrollments and registrations survive, with the order of groups and the ETags.
func TestTheServiceSurvives(t *testing.T) {
	s := &memory{}
	open := func(s testbroker.Store) *testbroker.DPS {
		d, err := testbroker.NewDPS(&testbroker.DPSOptions{Store: s})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	d := open(s)
	ca := testbroker.NewCertAuthority("maker").Cert()
	for _, e := range []dpsdata.Enrollment{
		{ID: "Sensor-1", Hubs: []string{"a", "b"}, Tags: `{"x":1}`, Reprovision: dpsdata.ReprovisionNever},
		{ID: "z", Group: true}, {ID: "a", Group: true}, {ID: "x509", Group: true, Certificates: []*x509.Certificate{ca}},
	} {
		_, err := d.Enroll(e)
		require.NoError(t, err)
	}
	require.NoError(t, d.Move("sensor-1", "c"))
	require.NoError(t, d.Delete("a"))
	pem := string(d.CAPEM()) // makes it
	again := open(s.killed())
	require.Equal(t, d.Enrollments(), again.Enrollments())
	require.Equal(t, pem, string(again.CAPEM()))
}

// When the store fails, the hub acknowledges nothing any more, and calls return.
func TestAStoreThatFails(t *testing.T) {
	s := &memory{}
	h := hubOn(t, s, testbroker.Options{})
	d := hubtest.AddDevice(t, h, "dev-1")
	w := hubtest.Login(t, h, d)
	w.Publish(1, hubtest.Events, "saved")
	require.EqualValues(t, 1, w.Acked())
	s.mu.Lock()
	s.fails = errors.New("disk full")
	s.mu.Unlock()
	w.Publish(2, hubtest.Events, "lost")
	w.End() // instead of the PUBACK
	require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("dev-1") == 0 }))
	_, err := h.AddDevice("dev-2")
	require.NoError(t, err, "it returns, although nothing is saved")
	_, err = h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub")
	require.Error(t, err, "no new connections")
}

// A record that its table did not write is an error that names it.
func TestARecordThatMakesNoSense(t *testing.T) {
	other, file := []byte(`{"Document":{"id":"b"}}`), []byte("\x00\x00\x00\x0c{\"Name\":\"b\"}")
	for name, r := range map[string]hubdata.Record{
		`table "new" is unknown`:                {Table: "new", Key: "x"},
		`record "dev-1" of the table "devices"`: {Table: "devices", Key: "dev-1", Value: []byte("{")},
		`record "dev-1" of the table "devicetwins"`: {Table: "devicetwins", Key: "dev-1",
			Value: []byte(`{"Desired":{"Tree":{"a":1}}}`)},
		`record "9/x" of the table "queues"`:       {Table: "queues", Key: "9/x", Value: []byte("1")},
		`of the table "waiting"`:                   {Table: "waiting", Key: "0/x/1", Value: []byte("{}")},
		`record "1" of the table "feedback"`:       {Table: "feedback", Key: "1", Value: []byte("{}")},
		`record "fffffffffffffff" of the`:          {Table: "feedback", Key: "fffffffffffffff", Value: []byte("{}")},
		`record "7fffffffffffffff" of the`:         {Table: "feedback", Key: "7fffffffffffffff", Value: []byte("{}")},
		`of the table "messages"`:                  {Table: "messages", Key: "1", Value: []byte("{}")},
		`of the table "certificates"`:              {Table: "certificates", Value: []byte("{}")},
		`record "a" of the table "configurations"`: {Table: "configurations", Key: "a", Value: other},
		`of the table "account"`:                   {Table: "account", Value: []byte(`"AAAA"`)},
		`record "A" of the table "containers"`:     {Table: "containers", Key: "A", Value: []byte("{}")},
		`record "c-1/a" of the table "files"`:      {Table: "files", Key: "c-1/a", Value: file},
		`record "c-1/b" of the table "files"`:      {Table: "files", Key: "c-1/b", Value: append(file, 0)},
		`record "c-1/c" of the table "files"`:      {Table: "files", Key: "c-1/c", Value: []byte("\x00\x00\x01\x0c{}")},
	} {
		s := &memory{records: map[[2]string][]byte{{r.Table, r.Key}: r.Value}}
		_, err := testbroker.New(&testbroker.Options{Store: s})
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "Options.Store")
	}
}

// Any content of a store makes a hub or an error.
func FuzzRestore(f *testing.F) {
	f.Add("devices", "dev-1/m", []byte(`{"Keys":{"Primary":"x"},"Thumbprints":["AA=="]}`))
	f.Add("devicetwins", "dev-1", []byte(`{"Desired":{"Tree":{},"Stamp":{"Object":true},"Version":1}}`))
	f.Add("queues", "0/dev-1", []byte("-5"))
	f.Add("partitions", "0000000000000001", []byte("4503599627370496"))
	f.Add("messages", "0000000000000005", []byte(`{"Sequence":5,"Body":"eA=="}`))
	f.Add("feedback", "0000000000000005", []byte(`{"Body":"eA==","Enqueued":"2030-01-01T00:00:00Z","Deliveries":9}`))
	f.Add("certificates", "", []byte(`{"Certificate":"MA=="}`))
	f.Add("containers", "c-1", []byte(`{"ETag":"0x7fffffffffffffff"}`))
	f.Add("files", "c-1/a", []byte("\x00\x00\x00\x2e"+`{"Name":"a","Parts":[{"Size":1},{"Size":-1}]}xx`))
	f.Add("configurations", "a", []byte(`{"Document":{"id":"a","targetCondition":"*","content":{"deviceContent":{}}}}`))
	f.Add("account", "", []byte(`"AAAA"`))
	f.Fuzz(func(t *testing.T, table, key string, value []byte) {
		h, err := testbroker.New(&testbroker.Options{Keep: 3,
			Store: &memory{records: map[[2]string][]byte{{table, key}: value}}})
		if err != nil {
			return
		}
		h.AddDevice("dev-1") // it may be there
		h.PatchDesired("dev-1", `{"a":{"b":1}}`)
		h.SendC2D("dev-1", hubdata.C2D{})
		require.NoError(t, h.Close())
	})
}

// A slowMemory takes a while for each write.
type slowMemory struct{ memory }

func (m *slowMemory) Save(changes []hubdata.Record) error {
	time.Sleep(100 * time.Millisecond)
	return m.memory.Save(changes)
}

// Messages that arrive during a write of the store share the next one, in one piece or one by one.
// Each is there before its PUBACK.
func TestMessagesThatSurviveShareAWrite(t *testing.T) {
	for _, pieces := range []int{1, 100} {
		hubtest.RunBubble(t, fmt.Sprintf("in pieces of %d", 100/pieces), func(t *testing.T) {
			s := &slowMemory{}
			h, d := hubtest.NewHub(t, &testbroker.Options{Store: s})
			conn := hubtest.DialPort(t, h, testbroker.PortMQTTS)
			w := hubtest.NewWire(t, tls.Client(conn, h.ClientTLS())) // a read returns one record
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			synctest.Wait()
			s.mu.Lock()
			before := s.saves
			s.mu.Unlock()
			const n = 100
			var piece []byte
			for id := range n {
				piece = append(piece, hubtest.PublishBytes(2, uint16(id+1), hubtest.Events, "x")...)
				if (id+1)%(n/pieces) == 0 {
					w.Send(piece)
					synctest.Wait()
					piece = nil
				}
			}
			for id := range uint16(n) {
				require.Equal(t, id+1, w.Acked())
				saved := 0
				for name := range s.killed().records {
					if name[0] == "messages" {
						saved++
					}
				}
				require.Greater(t, saved, int(id))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			require.LessOrEqual(t, s.saves-before, 10, "two for each write")
		})
	}
}

// Answers of the broker come after the PUBACKs of earlier messages, and so does the end.
func TestPubacksThatWaitForTheStoreComeInTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowMemory{}
		h, d := hubtest.NewHub(t, &testbroker.Options{Store: s})
		w := hubtest.Login(t, h, d)
		w.Send(append(hubtest.PublishBytes(2, 1, hubtest.Events, "x"), 0xc0, 0))
		require.Equal(t, uint16(1), w.Acked())
		saved := func(name [2]string) bool { return name[0] == "messages" }
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(s.killed().records)), saved))
		w.Expect(hubtest.Pingresp)
		w.Publish(2, hubtest.Events, "x")
		synctest.Wait()
		w.Send([]byte{0xc0, 0})
		require.Equal(t, uint16(2), w.Acked())
		w.Expect(hubtest.Pingresp)
		w.Publish(3, hubtest.Events, "x")
		require.NoError(t, w.Conn.(interface{ CloseWrite() error }).CloseWrite())
		require.Equal(t, uint16(3), w.Acked())
		require.ErrorIs(t, w.End(), io.EOF)
	})
}

// A client that is far ahead of the store is read no more until the store has caught up.
func TestAClientAheadOfTheStoreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Store: &slowMemory{}})
		w := hubtest.Login(t, h, d)
		synctest.Wait()
		const n = 10_000
		var all []byte
		for id := range uint16(n) {
			all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "x")...)
		}
		go w.Conn.Write(all)
		synctest.Wait()
		require.Greater(t, h.Len(), 4096)
		require.Less(t, h.Len(), 6000)
		for id := range uint16(n) {
			require.Equal(t, id+1, w.Acked())
		}
	})
}
