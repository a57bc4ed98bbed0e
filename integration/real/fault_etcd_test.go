package real

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/internal/etcdtest"
)

var onEtcd = []string{etcdOne, etcdThree}

// Faults of etcd.
var etcdFaults = []kind{
	{name: "member paused", slow: true, zombie: true, on: onEtcd, make: func(h *history) trouble {
		var m *etcdtest.Member
		lasts := h.between(h.plan.TTL/2, h.plan.TTL*3/2)
		return trouble{
			lasts: lasts,
			begin: func() { m = h.member(); m.Pause() },
			end:   func() { m.Resume() },
			bit:   h.disturbed(lasts / 4),
		}
	}},
	{name: "member restarted", slow: true, on: onEtcd, make: func(h *history) trouble {
		var m *etcdtest.Member
		return trouble{
			lasts: h.between(50*time.Millisecond, h.plan.TTL),
			begin: func() { m = h.member(); m.Kill() },
			end:   func() { m.Restart() },
			bit:   h.disturbed(50 * time.Millisecond),
		}
	}},
	{name: "member restarted empty", on: []string{etcdOne}, loses: true, forgets: true, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(50*time.Millisecond, h.plan.TTL),
			begin: func() { h.site.etcd.Members[0].Kill() },
			end:   func() { h.site.etcd.Members[0].RestartEmpty() },
			bit:   h.unknowns(0),
		}
	}},
	{name: "snapshot restored", slow: true, on: onEtcd, loses: true, forgets: true, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(h.plan.TTL/4, h.plan.TTL),
			begin: func() { h.site.etcd.Save() },
			end:   func() { h.site.etcd.GoBack() },
			bit:   h.disturbed(50 * time.Millisecond),
		}
	}},
	// The tokens by which the servers know their users last for a second, and until users change.
	{name: "users change", slow: true, on: onEtcd, needs: needs{users: true}, make: func(h *history) trouble {
		n := 0
		return trouble{
			lasts: h.between(2*time.Second, 3*time.Second),
			tick: every(h.between(200*time.Millisecond, 600*time.Millisecond), func() {
				n++
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				_, err := h.site.admin.UserAdd(ctx, fmt.Sprint("user ", n), "secret")
				h.must(err)
			}),
			bit: func(span) bool { return n > 1 },
		}
	}},
	{name: "leader moves", on: []string{etcdThree}, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick:  every(h.between(100*time.Millisecond, 400*time.Millisecond), func() { h.site.etcd.MoveLeader() }),
			bit:   func(span) bool { return true }, // MoveLeader has seen it
		}
	}},
	{name: "quorum lost", slow: true, zombie: true, on: []string{etcdThree}, make: func(h *history) trouble {
		lasts := h.between(h.plan.TTL/2, h.plan.TTL*3/2)
		first := h.rng.IntN(3)
		two := func(f func(*etcdtest.Member)) {
			for i := range 2 {
				f(h.site.etcd.Members[(first+i)%3])
			}
		}
		return trouble{
			lasts: lasts,
			begin: func() { two((*etcdtest.Member).Pause) },
			end:   func() { two((*etcdtest.Member).Resume) },
			bit:   h.disturbed(lasts / 2),
		}
	}},
	{name: "compacted", on: onEtcd, make: func(h *history) trouble {
		watchers := 0
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick: every(h.between(100*time.Millisecond, 300*time.Millisecond), func() {
				for _, m := range h.site.etcd.Members {
					watchers += m.Watchers()
				}
				h.site.etcd.Compact()
			}),
			bit: func(span) bool { return watchers > 0 },
		}
	}},
	{name: "space exhausted", on: onEtcd, make: func(h *history) trouble {
		alarm := func(action pb.AlarmRequest_AlarmAction) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			status, err := h.site.admin.Status(ctx, h.site.etcd.Members[0].Endpoint)
			h.must(err)
			_, err = pb.NewMaintenanceClient(h.site.admin.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
				Action: action, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
			})
			h.must(err)
		}
		return trouble{
			lasts: h.between(h.plan.TTL/2, h.plan.TTL*3/2),
			begin: func() { alarm(pb.AlarmRequest_ACTIVATE) },
			end:   func() { alarm(pb.AlarmRequest_DEACTIVATE) },
			bit: func(s span) bool {
				return h.saw(s, func(r record) bool { return r.Op == opAcquire && r.Outcome == refused })
			},
		}
	}},
	{name: "leases revoked", on: onEtcd, loses: true, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick: every(h.between(100*time.Millisecond, 500*time.Millisecond), func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				all, err := h.site.admin.Leases(ctx)
				h.must(err)
				for _, l := range all.Leases {
					h.site.admin.Revoke(ctx, l.ID) // it may have gone by itself
				}
			}),
			bit: h.losses,
		}
	}},
	{name: "keys deleted", on: onEtcd, loses: true, make: func(h *history) trouble {
		return trouble{
			lasts: h.between(time.Second, 2*time.Second),
			tick: every(h.between(100*time.Millisecond, 500*time.Millisecond), func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, err := h.site.admin.Delete(ctx, "", clientv3.WithPrefix())
				h.must(err)
			}),
			bit: h.losses,
		}
	}},
}

// guardEtcd has the servers ask for a user, and returns a client that may do everything.
func (s *site) guardEtcd() *clientv3.Client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	do := func(_ any, err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	free := s.etcd.Client(s.t)
	for user, role := range map[string]string{"root": "root", "locker": "locks"} {
		do(free.UserAdd(ctx, user, "secret"))
		do(free.RoleAdd(ctx, role))
		do(free.UserGrantRole(ctx, user, role))
	}
	do(free.RoleGrantPermission(ctx, "locks", "dlock/", "dlock0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(free.AuthEnable(ctx))
	root, err := clientv3.New(clientv3.Config{Endpoints: s.etcd.Endpoints(), Username: "root", Password: "secret", Logger: zap.NewNop()})
	do(nil, err)
	s.t.Cleanup(func() { root.Close() })
	return root
}

// member is any member, or the leader.
func (h *history) member() *etcdtest.Member {
	if h.rng.IntN(2) == 0 {
		return h.site.etcd.Leader()
	}
	return h.site.etcd.Members[h.rng.IntN(len(h.site.etcd.Members))]
}
