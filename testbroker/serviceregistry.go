package testbroker

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

var registryRoutes = []httpRoute{
	{kind: RouteRegistry, method: http.MethodGet, path: "devices", open: true, do: asService(RegistryRead|RegistryWrite,
		listDevices)},
	{kind: RouteRegistry, method: http.MethodGet, path: "devices/", open: true, do: asService(RegistryRead|RegistryWrite,
		listDevices)},
	{kind: RouteRegistry, method: http.MethodGet, path: "devices/{device}", open: true,
		do: asService(RegistryRead|RegistryWrite, getIdentity)},
	{kind: RouteRegistry, method: http.MethodPut, path: "devices/{device}", open: true, do: asService(RegistryWrite,
		putIdentity)},
	{kind: RouteRegistry, method: http.MethodDelete, path: "devices/{device}", open: true, do: asService(RegistryWrite,
		deleteIdentity)},
	{kind: RouteRegistry, method: http.MethodGet, path: "devices/{device}/modules", open: true,
		do: asService(RegistryRead|RegistryWrite, listModules)},
	{kind: RouteRegistry, method: http.MethodGet, path: "devices/{device}/modules/{module}", open: true,
		do: asService(RegistryRead|RegistryWrite, getIdentity)},
	{kind: RouteRegistry, method: http.MethodPut, path: "devices/{device}/modules/{module}", open: true,
		do: asService(RegistryWrite, putIdentity)},
	{kind: RouteRegistry, method: http.MethodDelete, path: "devices/{device}/modules/{module}", open: true,
		do: asService(RegistryWrite, deleteIdentity)},
	{kind: RouteRegistry, method: http.MethodPost, path: "devices/query", open: true,
		do: asService(RegistryRead|RegistryWrite|ServiceConnect, queryTwins)},
	{kind: RouteRegistry, method: http.MethodDelete, path: "devices/{device}/commands", open: true,
		do: asService(ServiceConnect, purgeCommands)},
	{kind: RouteRegistry, method: http.MethodGet, path: "statistics/devices", open: true,
		do: asService(RegistryRead|RegistryWrite, countDevices)},
	{kind: RouteRegistry, method: http.MethodGet, path: "statistics/service", open: true, do: asService(ServiceConnect,
		countConnected)},
}

// maxPage is how many entries a list has at most, and maxModules how many modules a device may
// have.
const (
	maxPage    = 1000
	maxModules = 50
)

// An identityDocument is an entry of the registry as back ends see it and send it.
type identityDocument struct {
	DeviceID                   string  `json:"deviceId"`
	ModuleID                   string  `json:"moduleId,omitempty"`
	GenerationID               string  `json:"generationId"`
	ETag                       string  `json:"etag"`
	ConnectionState            string  `json:"connectionState"`
	Status                     string  `json:"status"`
	StatusReason               *string `json:"statusReason"`
	ConnectionStateUpdatedTime string  `json:"connectionStateUpdatedTime"`
	StatusUpdatedTime          string  `json:"statusUpdatedTime"`
	LastActivityTime           string  `json:"lastActivityTime"`
	CloudToDeviceMessageCount  int     `json:"cloudToDeviceMessageCount"`
	Authentication             struct {
		SymmetricKey struct {
			PrimaryKey   *string `json:"primaryKey"`
			SecondaryKey *string `json:"secondaryKey"`
		} `json:"symmetricKey"`
		X509Thumbprint thumbprints `json:"x509Thumbprint"`
		Type           string      `json:"type"`
	} `json:"authentication"`
	Capabilities struct {
		IoTEdge bool `json:"iotEdge"`
	} `json:"capabilities"`
}

type thumbprints struct {
	PrimaryThumbprint   *string `json:"primaryThumbprint"`
	SecondaryThumbprint *string `json:"secondaryThumbprint"`
}

// never is the time of what has not happened, or is not known.
const never = "0001-01-01T00:00:00Z"

// identityDocument makes the document of an entry.
func (h *Hub) identityDocument(id identity) (identityDocument, error) {
	waiting := h.CountC2D(id.String(), Enqueued) + h.CountC2D(id.String(), Invisible)
	h.mu.Lock()
	r := h.registry[id]
	if r == nil {
		h.mu.Unlock()
		_, err := h.twin(id) // which tells what is missing
		return identityDocument{}, err
	}
	defer h.mu.Unlock()
	d := identityDocument{
		DeviceID: id.device, ModuleID: id.module, GenerationID: r.generation, ETag: r.etag(), ConnectionState: "Disconnected",
		Status:                     "enabled",
		ConnectionStateUpdatedTime: never, StatusUpdatedTime: never, LastActivityTime: never,
		CloudToDeviceMessageCount: waiting,
	}
	if h.connectedLocked(id) {
		d.ConnectionState = "Connected"
	}
	if r.disabled {
		d.Status = "disabled"
	}
	if !r.statusUpdated.IsZero() {
		d.StatusUpdatedTime = r.statusUpdated.UTC().Format(timeLayout)
	}
	if r.statusReason != "" {
		d.StatusReason = &r.statusReason
	}
	keys := r.keys
	switch {
	case !r.x509:
		d.Authentication.Type = "sas"
		d.Authentication.SymmetricKey.PrimaryKey, d.Authentication.SymmetricKey.SecondaryKey = &keys.primary, &keys.secondary
	case r.thumbprints == nil:
		d.Authentication.Type = "certificateAuthority"
	default:
		d.Authentication.Type = "selfSigned"
		places := []**string{&d.Authentication.X509Thumbprint.PrimaryThumbprint,
			&d.Authentication.X509Thumbprint.SecondaryThumbprint}
		for i, digest := range r.thumbprints {
			text := strings.ToUpper(hex.EncodeToString([]byte(digest)))
			*places[i] = &text
		}
	}
	return d, nil
}

// connectedLocked says whether an identity has a connection over MQTT, or may act on one over AMQP.
func (h *Hub) connectedLocked(id identity) bool {
	for c := range h.conns {
		if c.peer != nil && c.peer.presentLocked(id) {
			return true
		}
	}
	return false
}

// etag is that of an entry; it changes with each change.
func (r *registration) etag() string {
	return base64.StdEncoding.EncodeToString(strconv.AppendInt(nil, int64(r.changes)+1, 10))
}

// read makes of a document what the registry holds.
func (d *identityDocument) read(h *Hub) (registration, error) {
	bad := func(format string, args ...any) (registration, error) {
		return registration{}, h.serviceError(codeArgumentInvalid, format, args...)
	}
	r := registration{}
	switch d.Status {
	case "", "enabled":
	case "disabled":
		r.disabled = true
	default:
		return bad("status %q", d.Status)
	}
	if d.StatusReason != nil {
		r.statusReason = *d.StatusReason
	}
	primary, secondary := d.Authentication.SymmetricKey.PrimaryKey, d.Authentication.SymmetricKey.SecondaryKey
	for _, text := range []*string{d.Authentication.X509Thumbprint.PrimaryThumbprint,
		d.Authentication.X509Thumbprint.SecondaryThumbprint} {
		if text == nil || *text == "" {
			continue
		}
		digest, err := parseThumbprint(*text)
		if err != nil {
			return bad("%v", err)
		}
		r.thumbprints = append(r.thumbprints, digest)
	}
	kind := strings.ToLower(d.Authentication.Type)
	if kind == "" {
		kind = "sas"
		if r.thumbprints != nil {
			kind = "selfsigned"
		}
	}
	switch kind {
	case "sas":
		r.thumbprints = nil
		if primary != nil && secondary != nil && *primary != "" && *secondary != "" {
			r.keys = keyPair{*primary, *secondary}
			return r, checkKeys(h, r.keys)
		}
		if primary != nil && *primary != "" || secondary != nil && *secondary != "" {
			return bad("one key is missing")
		}
	case "selfsigned":
		if r.x509 = true; r.thumbprints == nil {
			return bad("no thumbprint")
		}
	case "certificateauthority":
		r.x509, r.thumbprints = true, nil
	default:
		return bad("authentication type %q", d.Authentication.Type)
	}
	return r, nil
}

func checkKeys(h *Hub, keys keyPair) error {
	for _, key := range []string{keys.primary, keys.secondary} {
		if err := checkKeyText(key); err != nil {
			return h.serviceError(codeArgumentInvalid, "%v", err)
		}
	}
	return nil
}

func getIdentity(q *httpRequest) (httpAnswer, error) {
	d, err := q.hub.identityDocument(q.id)
	if err != nil {
		return httpAnswer{}, err
	}
	return answerJSON(d, d.ETag), nil
}

// putIdentity makes an entry, or with If-Match changes one.
func putIdentity(q *httpRequest) (httpAnswer, error) {
	h := q.hub
	var d identityDocument
	if err := q.readJSON(&d); err != nil {
		return httpAnswer{}, err
	}
	if d.DeviceID != q.id.device || d.ModuleID != q.id.module {
		return httpAnswer{}, h.serviceError(codeArgumentInvalid, "the body is about %s, the path about %s",
			identity{d.DeviceID, d.ModuleID}, q.id)
	}
	err := checkID("device", q.id.device)
	if err == nil && q.id.module != "" {
		err = checkID("module", q.id.module)
	}
	if err != nil {
		return httpAnswer{}, h.serviceError(codeArgumentInvalid, "%v", err)
	}
	r, err := d.read(h)
	if err != nil {
		return httpAnswer{}, err
	}
	if etag, update := q.ifMatch(); update {
		err = h.updateIdentity(q.id, r, etag)
	} else {
		err = h.createIdentity(q.id, r)
	}
	if err != nil {
		return httpAnswer{}, err
	}
	return getIdentity(q)
}

func (h *Hub) createIdentity(id identity, r registration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.module != "" {
		if h.registry[identity{device: id.device}] == nil {
			return h.serviceError(codeDeviceNotFound, "%s is not registered", id.device)
		}
		n := 0
		for other := range h.registry {
			if other.device == id.device && other.module != "" {
				n++
			}
		}
		if n >= maxModules {
			return h.serviceError(413003, "%s has %d modules", id.device, n)
		}
	}
	switch {
	case h.registry[id] != nil && id.module != "":
		return h.serviceError(409301, "%s is registered already", id)
	case h.registry[id] != nil:
		return h.serviceError(409001, "%s is registered already", id)
	}
	h.addLocked(id, r)
	return nil
}

func (h *Hub) updateIdentity(id identity, r registration, etag string) error {
	if _, err := h.twin(id); err != nil {
		return err
	}
	h.mu.Lock()
	old := h.registry[id]
	if old == nil || etag != "*" && etag != old.etag() {
		h.mu.Unlock()
		return h.serviceError(codePreconditionFailed, "the etag of %s is another", id)
	}
	if r.keys == (keyPair{}) && !r.x509 {
		if r.keys = old.keys; r.keys == (keyPair{}) {
			r.keys = h.newKeysLocked("identity/" + id.String())
		}
	}
	r.generation, r.changes, r.statusUpdated = old.generation, old.changes+1, old.statusUpdated
	if r.disabled != old.disabled {
		r.statusUpdated = h.now()
	}
	expel := r.disabled && !old.disabled
	*old = r
	var open []*conn
	if expel {
		open = h.connsLocked(id.String())
	}
	h.mu.Unlock()
	h.expel(open, id.String(), ErrDisabled, unauthorized)
	return nil
}

func deleteIdentity(q *httpRequest) (httpAnswer, error) {
	d, err := q.hub.identityDocument(q.id)
	if err != nil {
		return httpAnswer{}, err
	}
	if etag, ok := q.ifMatch(); ok && etag != "*" && etag != d.ETag {
		return httpAnswer{}, q.hub.serviceError(codePreconditionFailed, "the etag of %s is %s", q.id, d.ETag)
	}
	if err := q.hub.RemoveDevice(q.id.String()); err != nil {
		return httpAnswer{}, q.hub.serviceError(codeDeviceNotFound, "%s is not registered", q.id)
	}
	return httpAnswer{status: http.StatusNoContent}, nil
}

// documents returns the entries that are wanted, in the order of their names, so many at most.
func (h *Hub) documents(most int, want func(identity) bool) []identityDocument {
	all := []identityDocument{}
	for _, id := range h.identities() {
		if len(all) >= most {
			break
		}
		if want(id) {
			if d, err := h.identityDocument(id); err == nil { // it may have been removed meanwhile
				all = append(all, d)
			}
		}
	}
	return all
}

func listDevices(q *httpRequest) (httpAnswer, error) {
	most := maxPage
	if top := q.query.Get("top"); top != "" {
		n, err := strconv.Atoi(top)
		if err != nil || n < 1 || n > maxPage {
			return httpAnswer{}, q.hub.serviceError(codeArgumentInvalid, "top %q, want 1 to %d", top, maxPage)
		}
		most = n
	}
	return answerJSON(q.hub.documents(most, func(id identity) bool { return id.module == "" }), ""), nil
}

func listModules(q *httpRequest) (httpAnswer, error) {
	if _, err := q.hub.twin(q.id); err != nil {
		return httpAnswer{}, err
	}
	return answerJSON(q.hub.documents(maxPage,
		func(id identity) bool { return id.device == q.id.device && id.module != "" }), ""), nil
}

func purgeCommands(q *httpRequest) (httpAnswer, error) {
	if _, err := q.hub.twin(q.id); err != nil {
		return httpAnswer{}, err
	}
	n := 0
	if queue, err := q.hub.queue(q.id); err == nil {
		n = queue.purge()
		q.hub.changed.wake()
	}
	return answerJSON(tree{"totalMessagesPurged": n, "deviceId": q.id.device, "moduleId": nil}, ""), nil
}

func countDevices(q *httpRequest) (httpAnswer, error) {
	h := q.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	all, disabled := 0, 0
	for id, r := range h.registry {
		if id.module == "" {
			all++
			if r.disabled {
				disabled++
			}
		}
	}
	return answerJSON(tree{"totalDeviceCount": all, "enabledDeviceCount": all - disabled, "disabledDeviceCount": disabled},
		""), nil
}

func countConnected(q *httpRequest) (httpAnswer, error) {
	h := q.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for id := range h.registry {
		if id.module == "" && h.connectedLocked(id) {
			n++
		}
	}
	return answerJSON(tree{"connectedDeviceCount": n}, ""), nil
}

// queryForm is all of the service's query language that the hub has.
var queryForm = regexp.MustCompile(
	`(?i)^\s*select\s+\*\s+from\s+(devices|devices\.modules)(?:\s+where\s+(deviceId|moduleId|status|connectionState)\s*=\s*'([^']*)')?\s*;?\s*$`)

// queryTwins answers a query with twins, page by page.
func queryTwins(q *httpRequest) (httpAnswer, error) {
	h := q.hub
	var body struct {
		Query string `json:"query"`
	}
	if err := q.readJSON(&body); err != nil {
		return httpAnswer{}, err
	}
	form := queryForm.FindStringSubmatch(body.Query)
	if form == nil {
		return httpAnswer{}, h.serviceError(codeArgumentInvalid, "this hub does not understand the query %q", body.Query)
	}
	size, err := strconv.Atoi(cmp.Or(q.Header.Get("x-ms-max-item-count"), strconv.Itoa(maxPage)))
	if err != nil || size < 1 || size > maxPage {
		return httpAnswer{}, h.serviceError(codeArgumentInvalid, "x-ms-max-item-count, want 1 to %d", maxPage)
	}
	from, err := strconv.Atoi(cmp.Or(q.Header.Get("x-ms-continuation"), "0"))
	if err != nil || from < 0 {
		return httpAnswer{}, h.serviceError(codeArgumentInvalid, "x-ms-continuation is not one of this hub")
	}
	page := []tree{}
	for _, t := range h.twinsOf(strings.EqualFold(form[1], "devices.modules")) {
		if name := queryFields[strings.ToLower(form[2])]; name == "" || t[name] == form[3] {
			page = append(page, t)
		}
	}
	page = page[min(from, len(page)):]
	more := len(page) > size
	page = page[:min(size, len(page))]
	a := answerJSON(page, "")
	a.header.Set("x-ms-item-type", "Twin")
	if more {
		a.header.Set("x-ms-continuation", strconv.Itoa(from+size))
	}
	return a, nil
}

// queryFields are the members of a twin that a query may compare, by their names in lower case.
var queryFields = map[string]string{"deviceid": "deviceId", "moduleid": "moduleId", "status": "status",
	"connectionstate": "connectionState"}
