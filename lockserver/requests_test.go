package lockserver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// request returns a request with a body of a type.
func request(method, path, kind, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

const (
	asJSON = "application/json"
	asForm = "application/x-www-form-urlencoded"
)

// TestBadRequestsHaveOneClearCode checks the code of each request that is refused for its
// form, and that none of them takes a lock.
func TestBadRequestsHaveOneClearCode(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		good := `"id":"` + id(1) + `","name":"a","ttl_ms":9000`
		for _, x := range []struct {
			method, path, kind, body string
			status                   int
			code                     string
		}{
			{"POST", "/v1/acquire", "", "x", 415, "media_type"},
			{"POST", "/v1/acquire", "text/plain", "x", 415, "media_type"},
			{"POST", "/v1/acquire", asJSON, "", 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "[]", 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{", 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + "}{}", 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"name":"b"}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"Name":"b"}`, 400, "unknown_field"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"abandon":true}`, 400, "unknown_field"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"try":null}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"try":1}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"pid":1.5}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"pid":99999999999999999999}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"note":"a\u0007"}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"note":"` + strings.Repeat("n", 513) + `"}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"host":"` + strings.Repeat("h", 257) + `"}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"wait_ms":30001}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"wait_ms":-1}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"max_hold_ms":0}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"max_hold_ms":9223372036854775807}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"resume":0}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"kind":"latch"}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"permits":1}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"kind":"permits"}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"kind":"permits","of":3,"permits":4}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"kind":"permits","of":3,"pinned":false}`, 400, "unsupported"},
			{"POST", "/v1/acquire", asJSON, "{" + good + `,"pinned":true,"resume":256}`, 400, "unsupported"},
			{"POST", "/v1/acquire", asJSON, `{"id":"short","name":"a","ttl_ms":9000}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, `{"name":"a","ttl_ms":9000}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asJSON, `{"id":"` + id(1) + `","ttl_ms":9000}`, 400, "bad_name"},
			{"POST", "/v1/acquire", asJSON, `{"id":"` + id(1) + `","name":"` + strings.Repeat("n", 1025) + `","ttl_ms":9000}`, 400, "bad_name"},
			{"POST", "/v1/acquire", asJSON, `{"id":"` + id(1) + `","name":"a"}`, 400, "bad_ttl"},
			{"POST", "/v1/acquire", asJSON, `{"id":"` + id(1) + `","name":"a","ttl_ms":999}`, 400, "bad_ttl"},
			{"POST", "/v1/acquire", asJSON, `{"id":"` + id(1) + `","name":"a","ttl_ms":600001}`, 400, "bad_ttl"},
			{"POST", "/v1/acquire", asJSON, `{"id":"` + id(1) + `","name":"a\ud800","ttl_ms":9000}`, 400, "bad_request"},
			{"POST", "/v1/acquire", asForm, "id=%zz", 400, "bad_request"},
			{"POST", "/v1/acquire", asForm, "name=a&name=b", 400, "bad_request"},
			{"POST", "/v1/acquire", asForm, "name=%ff", 400, "bad_request"},
			{"POST", "/v1/acquire", asForm, "ttl_ms=x", 400, "bad_request"},
			{"POST", "/v1/acquire", asForm, "try=perhaps", 400, "bad_request"},
			{"POST", "/v1/acquire", asForm, "token=1", 400, "unknown_field"},
			{"POST", "/v1/acquire", asForm, "note=" + strings.Repeat("n", maxBodySize), 413, "too_large"},
			{"POST", "/v1/renew", asForm, "", 400, "bad_request"},
			{"POST", "/v1/renew", asForm, strings.Repeat("id="+id(1)+"&", 101), 400, "bad_request"},
			{"POST", "/v1/renew", asForm, "id=" + id(1) + "&name=a", 400, "unknown_field"},
			{"POST", "/v1/renew", asJSON, `{"holds":[{"id":"x"}]}`, 400, "bad_request"},
			{"POST", "/v1/renew", asJSON, `{"holds":[],"x":1}`, 400, "unknown_field"},
			{"POST", "/v1/renew", asForm, "id=" + strings.Repeat("i", maxBatchSize), 413, "too_large"},
			{"POST", "/v1/release", asForm, "id=" + id(1), 400, "bad_name"},
			{"POST", "/v1/release", asJSON, `{"holds":[{"id":"` + id(1) + `","name":"a","abandon":true}]}`, 400, "unknown_field"},
			{"POST", "/v1/hold", asJSON, "{" + good + "}", 400, "bad_request"},
			{"POST", "/v1/hold", asJSON, "{" + good + `,"max_hold_ms":1000,"on_close":"keep"}`, 400, "bad_request"},
			{"POST", "/v1/break", asForm, "name=a&ticket=t&owner=o", 400, "bad_request"},
			{"POST", "/v1/break", asForm, "name=a", 400, "bad_request"},
			{"GET", "/v1/events", "", "", 400, "bad_request"},
			{"GET", "/v1/locks?limit=0", "", "", 400, "bad_request"},
			{"GET", "/v1/locks?limit=1001", "", "", 400, "bad_request"},
			{"GET", "/v1/lock", "", "", 400, "bad_name"},
			{"GET", "/v1/lock?name=a&token=secret", "", "", 400, "unknown_field"},
			{"GET", "/v1/acquire", "", "", 405, "bad_request"},
			{"POST", "/v1/locks", "", "", 405, "bad_request"},
			{"GET", "/v1/nothing", "", "", 404, "bad_request"},
			{"GET", "/v1/../v1/server", "", "", 404, "bad_request"},
		} {
			w.want(x.method+" "+x.path+" "+x.body[:min(len(x.body), 200)], w.send(s, request(x.method, x.path, x.kind, x.body)), x.status, "code", x.code)
		}
		if len(s.table.holds) > 0 || len(s.quota.uses) > 0 {
			t.Errorf("%d holds, %d principals are left", len(s.table.holds), len(s.quota.uses))
		}
	})
}

// TestAnswersInLines checks the answers for shells: key=value, one a line.
func TestAnswersInLines(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		send := func(path, body string) string {
			r := request("POST", path, asForm, body)
			r.Header.Set("Accept", "text/plain")
			return w.send(s, r).raw
		}
		tail := "server=" + s.Name() + "\ngroup="
		got := send("/v1/acquire", "id="+id(1)+"&name=a&ttl_ms=9000&note=x")
		if want := "state=held\ntoken=256\nleft_ms=8890\nresumable=true\n" + tail; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		got = send("/v1/acquire", "id="+id(2)+"&name=a&ttl_ms=9000&try=true")
		if want := "title=Conflict\nstatus=409\ncode=held\n"; !strings.HasPrefix(got, want) || !strings.Contains(got, "\nholder_principal=local\n") {
			t.Errorf("%q, want %q", got, want)
		}
		got = send("/v1/renew", "id="+id(1)+"&id="+id(9))
		if want := "id=" + id(1) + "\nstate=held\ntoken=256\nleft_ms=8890\nresumable=true\n\nid=" + id(9) + "\nstatus=404\ncode=unknown_hold\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		got = send("/v1/release", "id="+id(1)+"&name=a")
		if want := "id=" + id(1) + "\nresult=released\n" + tail; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// byHeader identifies principals by the names that their requests have for a token.
func byHeader(principals ...Principal) *Auth {
	return &Auth{Identify: func(r *http.Request) (Principal, error) {
		for _, p := range principals {
			if r.Header.Get("Authorization") == "Bearer "+p.Name {
				return p, nil
			}
		}
		return Principal{}, errors.New("no such token")
	}}
}

// as sends requests as a principal.
func as(s http.Handler, principal string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+principal)
		s.ServeHTTP(w, r)
	})
}

// TestRightsOfPrincipals checks that no request touches names outside its principal's
// prefixes, and that an id is of no use to another principal (attacks 20 and 22).
func TestRightsOfPrincipals(t *testing.T) {
	bubble(t, func(w *world) {
		var denied []string
		lock := []Right{RightRead, RightLock}
		s := w.serverWith(w.client(), Options{
			Auth: byHeader(
				Principal{Name: "billing", Grants: []Grant{{Prefix: "invoice/", May: lock, MaxHold: 20 * time.Second}}},
				Principal{Name: "stock", Grants: []Grant{{Prefix: "", May: lock}}},
				Principal{Name: "admin", Grants: []Grant{{May: []Right{RightBreak}}}},
				Principal{Name: "bad\nname"}),
			Events: Events{Denied: func(e DeniedInfo) { denied = append(denied, e.Principal+" "+e.Code) }},
		})
		billing, stock, admin := as(s, "billing"), as(s, "stock"), as(s, "admin")
		w.want("no token", w.acquire(s, 1, "invoice/1"), 401, "code", "unauthenticated")
		w.want("a bad name", w.acquire(as(s, "bad\nname"), 1, "invoice/1"), 401, "code", "unauthenticated")
		for _, name := range []string{"invoices/1", "invoice", "Invoice/1", "x/../invoice/1", "%69nvoice/1", "ınvoice/1"} {
			w.want(name, w.acquire(billing, 1, name), 403, "code", "forbidden")
		}
		w.want("release", w.release(billing, 1, "stock/1"), 200, "code", "forbidden")
		w.want("lock", w.get(billing, "/v1/lock?name=stock"), 403, "code", "forbidden")
		first := w.acquire(billing, 1, "invoice/1")
		w.want("its own", first, 200, "state", "held")
		w.want("renewal by another", w.renew(stock, 1), 200, "code", "unknown_hold")
		w.want("release by another", w.release(stock, 1, "invoice/1", "moved", "true"), 200, "result", "gone")
		w.want("resume by another", w.acquire(stock, 1, "invoice/1", "resume", first.text("token")), 410, "code", "released")
		w.want("resume by another", w.acquire(stock, 2, "invoice/1", "resume", first.text("token")), 410, "code", "lost")
		w.want("renewal", w.renew(billing, 1), 200, "state", "held")
		w.want("break without the right", w.post(stock, "/v1/break", "name", "invoice/1", "ticket", "t"), 403, "code", "forbidden")
		w.want("read without the right", w.get(admin, "/v1/lock?name=invoice/1"), 403, "code", "forbidden")
		owner := s.table.keyOf("billing", id(1)).owner()
		w.want("break", w.post(admin, "/v1/break", "name", "invoice/1", "owner", owner), 200, "broken", "1")
		w.want("break again", w.post(admin, "/v1/break", "name", "invoice/1", "owner", owner), 404, "code", "no_ticket")
		settle()
		w.want("renewal after the break", w.renew(billing, 1), 200, "code", "lost", "reason", "gone")
		w.want("bounded hold", w.acquire(billing, 3, "invoice/1"), 200, "state", "held")
		for range 3 {
			time.Sleep(7 * time.Second)
			w.renew(billing, 3)
		}
		w.want("renewal after the bound", w.renew(billing, 3), 200, "code", "lost", "reason", "max_hold")
		if len(denied) < 10 {
			t.Errorf("denied: %v", denied)
		}
		w.release(billing, 3, "invoice/1")
	})
}

// TestRevokedPrincipalsHoldsRunOut checks that rights are looked up for each request,
// renewals too.
func TestRevokedPrincipalsHoldsRunOut(t *testing.T) {
	bubble(t, func(w *world) {
		p := localPrincipal
		s := w.serverWith(w.client(), Options{Auth: &Auth{Identify: func(*http.Request) (Principal, error) { return p, nil }}})
		w.acquire(s, 1, "a")
		p.Grants = nil
		w.want("renew", w.renew(s, 1), 200, "status", "403", "code", "forbidden")
		asked := time.Now()
		if at := <-w.lockAfter("a"); at.Sub(asked) > 10*time.Second {
			t.Errorf("the next one waited %v", at.Sub(asked))
		}
	})
}

// TestForeignPagesAreRefused checks attacks 17 and 18: a host name that a foreign name
// server points here, and a form that a foreign page posts.
func TestForeignPagesAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		named := w.serverWith(w.client(), Options{Hosts: []string{"lockd1.corp"}})
		for host, want := range map[string]int{
			"evil.example:7420": 403, "evil.example": 403, "127.0.0.1.evil.example": 403, "": 403,
			"localhost:7420": 200, "127.0.0.1": 200, "[::1]:7420": 200, "LOCALHOST": 200,
		} {
			r := request("GET", "/healthz", "", "")
			r.Host = host
			if got := w.send(s, r); got.status != want {
				t.Errorf("host %q: %d, want %d", host, got.status, want)
			}
		}
		for host, want := range map[string]int{"lockd1.corp:7420": 200, "LOCKD1.corp": 200, "127.0.0.1": 403, "localhost": 403} {
			r := request("GET", "/healthz", "", "")
			r.Host = host
			if got := w.send(named, r); got.status != want {
				t.Errorf("host %q of a server with names: %d, want %d", host, got.status, want)
			}
		}
		for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
			r := request("POST", "/v1/acquire", asForm, "id="+id(1)+"&name=a&ttl_ms=9000")
			r.Header.Set(header, value)
			w.want(header, w.send(s, r), 403, "code", "cross_origin")
		}
		r := request("POST", "/v1/acquire", asForm, "id="+id(1)+"&name=a&ttl_ms=9000")
		r.Header.Set("Early-Data", "1")
		w.want("early data", w.send(s, r), 425, "code", "too_early")
		w.want("break of local", w.post(s, "/v1/break", "name", "a", "ticket", "t"), 403, "code", "forbidden")
		if h, _ := w.tickets(w.client(), "a"); h != 0 {
			t.Error("a foreign page has a lock")
		}
	})
}

// TestAttack21LimitsKeepRoomForRenewals checks attack 21: beyond the limits new places are
// refused, and renewals and releases go on.
func TestAttack21LimitsKeepRoomForRenewals(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.serverWith(w.client(), Options{Limits: Limits{Holds: 3, Waiters: 1, Polls: 2}})
		w.acquire(s, 1, "a")
		w.want("a waiter", w.acquire(s, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
		r := w.acquire(s, 3, "a", "wait_ms", "0")
		w.want("another waiter", r, 429, "code", "too_many")
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		w.want("renew", w.renew(s, 1), 200, "state", "held")
		w.release(s, 2, "a")
		settle()
		w.acquire(s, 4, "b")
		w.acquire(s, 5, "c")
		w.want("a fourth hold", w.acquire(s, 6, "d"), 429, "code", "too_many")
		w.want("the same again", w.acquire(s, 5, "c"), 200, "state", "held")
		for n, name := range map[int]string{1: "a", 4: "b", 5: "c"} {
			w.want("release", w.release(s, n, name), 200, "result", "released")
		}
		if len(s.quota.uses) != 0 {
			t.Errorf("%v", s.quota.uses[LocalName])
		}
	})
}

// TestBadOptionsAreRefused checks that New refuses what cannot work.
func TestBadOptionsAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.client()
		for what, o := range map[string]Options{
			"auth": {Auth: &Auth{}}, "negative": {Limits: Limits{Holds: -1}},
			"TTLs": {Limits: Limits{MinTTL: time.Minute, MaxTTL: time.Second}}, "the store's": {Limits: Limits{MinTTL: time.Microsecond}},
		} {
			if _, err := New(c, o); err == nil || !strings.HasPrefix(err.Error(), "lockserver: ") {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, c := range []*holdfast.Client{nil, new(holdfast.Client)} {
			if _, err := New(c, Options{}); err == nil {
				t.Error("a client that nobody made")
			}
		}
	})
}

func FuzzBodies(f *testing.F) {
	f.Add(`{"id":"0123456789abcdef","name":"a","ttl_ms":9000}`, true)
	f.Add("id=0123456789abcdef.1&name=a&ttl_ms=9000&try=true", false)
	f.Add(`{"holds":[{"id":"0123456789abcdef","name":"a","moved":true}]}`, true)
	f.Fuzz(func(t *testing.T, body string, isJSON bool) {
		if isJSON {
			if list, bad := parseList([]byte(body)); bad == nil {
				for _, raw := range list {
					_, _ = parseJSON(raw, releaseParams)
				}
			}
			_, _ = parseJSON([]byte(body), holdParams)
			return
		}
		p, bad := parseForm(body, holdParams)
		if bad != nil {
			return
		}
		if checkID(p.text("id")) == nil && (len(clientOf(p.text("id"))) < 16 || len(p.text("id")) > 84) {
			t.Errorf("id %q", p.text("id"))
		}
	})
}

func FuzzIDs(f *testing.F) {
	f.Add("0123456789abcdef.1")
	f.Add("0123456789abcdef\n")
	f.Fuzz(func(t *testing.T, id string) {
		if checkID(id) != nil {
			return
		}
		if strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.") != "" || !clientPattern().MatchString(clientOf(id)) {
			t.Errorf("%q", id)
		}
	})
}

// TestLoneSurrogates checks which texts have half of a pair: the decoder replaces it, and
// different names would be one.
func TestLoneSurrogates(t *testing.T) {
	for text, want := range map[string]bool{
		`{"name":"\ud83d\ude00"}`: false, `"\uD83D\uDE00\u00e9"`: false, `"\\ud800"`: false, `"\ufffd"`: false, `"ud800"`: false, ``: false,
		`"\ud800"`: true, `"\udc00"`: true, `"\ud800\ud800"`: true, `"\ud800\n\udc00"`: true, `"\ud83d\ude00\udc00"`: true, `"\\\ud800"`: true,
	} {
		if got := hasLoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestProbesByHEAD checks that a probe without a body is answered, and that nothing else is.
func TestProbesByHEAD(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/server": 405, "/nothing": 404} {
			r, rec := request("HEAD", path, "", ""), httptest.NewRecorder()
			r.Host = "127.0.0.1"
			s.ServeHTTP(rec, r)
			if rec.Code != want {
				t.Errorf("HEAD %s: %d, want %d", path, rec.Code, want)
			}
		}
	})
}
