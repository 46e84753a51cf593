package stock

import (
	"sync"
	"sync/atomic"
)

// uncertainSales are sales of unknown outcome. No other mutex is taken under mu.
type uncertainSales struct {
	number atomic.Int64 // of sales
	mu     sync.Mutex
	sales  map[[2]string]struct{} // by SKU and id
}

// isFresh reports whether no earlier call has left the sale's outcome unknown.
// It returns false when too many sales are uncertain.
func (s *uncertainSales) isFresh(key [2]string) bool {
	if s.number.Load() == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, uncertain := s.sales[key]
	return !uncertain && len(s.sales) < maxUnsure
}

// add remembers a sale of unknown outcome, so that its next try is
// not answered without a request. When too many are remembered, no sale is
// answered without a request.
func (s *uncertainSales) add(key [2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sales) < maxUnsure {
		s.sales[key] = struct{}{}
	}
	s.number.Store(int64(len(s.sales)))
}

// remove forgets a sale: its outcome is known.
func (s *uncertainSales) remove(key [2]string) {
	if s.number.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sales, key)
	s.number.Store(int64(len(s.sales)))
}
