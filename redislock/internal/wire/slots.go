package wire

import (
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
)

// slotRange is an entry of the answer to CLUSTER SLOTS.
type slotRange struct {
	From, To int
	Primary  string // host:port, without brackets
	Replicas []string
}

// ReadSlots reads the answer to CLUSTER SLOTS. id is that of the node that has
// the first of the slots.
func ReadSlots(r *Reply) (ranges []slotRange, id string, err error) {
	list, err := r.List()
	if err != nil {
		return nil, "", Unreadable("CLUSTER SLOTS")
	}
	first := Slots
	for i := range list {
		v, err := list[i].List()
		if err != nil || len(v) < 3 {
			return nil, "", Unreadable("CLUSTER SLOTS")
		}
		from, err1 := v[0].Int()
		to, err2 := v[1].Int()
		if err1 != nil || err2 != nil || from < 0 || to < from || to >= Slots {
			return nil, "", Unreadable("CLUSTER SLOTS")
		}
		at := slotRange{From: int(from), To: int(to)}
		for k := 2; k < len(v); k++ {
			n, err := v[k].List()
			if err != nil || len(n) < 2 {
				return nil, "", Unreadable("CLUSTER SLOTS")
			}
			host, _ := n[0].Text() // empty if the host is the node's own
			port, err := n[1].Int()
			if err != nil {
				return nil, "", Unreadable("CLUSTER SLOTS")
			}
			addr := host + ":" + strconv.FormatInt(port, 10)
			if k > 2 {
				at.Replicas = append(at.Replicas, addr)
				continue
			}
			if at.Primary = addr; len(n) > 2 && at.From < first {
				id, _ = n[2].Text()
				first = at.From
			}
		}
		ranges = append(ranges, at)
	}
	if len(ranges) == 0 {
		return nil, "", driver.NotReady(0, "the cluster has assigned no slots")
	}
	return ranges, id, nil
}
