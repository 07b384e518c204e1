import time

import torch
from torch import nn

import tvm_tile
from tvm_tile import Open

src=open(__file__).read
class Block(nn.Module):
    def __init__(s,d=256,h=4,causal=True):
        super().__init__(); s.q=nn.Linear(d,d);s.k=nn.Linear(d,d);s.v=nn.Linear(d,d);s.o=nn.Linear(d,d);s.n1=nn.LayerNorm(d);s.n2=nn.LayerNorm(d);s.f1=nn.Linear(d,4*d);s.f2=nn.Linear(4*d,d);s.h=h; s.causal=causal
    def forward(s,x):
        b,n,d=x.shape
        f=lambda t:t.view(b,n,s.h,d//s.h).transpose(1,2)
        y=torch.nn.functional.scaled_dot_product_attention(f(s.q(x)),f(s.k(x)),f(s.v(x)),is_causal=s.causal)
        x=s.n1(x+s.o(y.transpose(1,2).reshape(b,n,d)))
        return s.n2(x+s.f2(torch.nn.functional.gelu(s.f1(x))))
class Bert(nn.Module):
    def __init__(s,layers=2,d=256,h=4,causal=True):
        super().__init__(); s.e=nn.Embedding(1000,d); s.p=nn.Embedding(512,d); s.b=nn.Sequential(*[Block(d,h,causal) for _ in range(layers)])
    def forward(s,t):
        n=t.shape[1]
        return s.b(s.e(t)+s.p(torch.arange(n,device=t.device)))
class Conv(nn.Module):
    def __init__(s):
        super().__init__(); s.m=nn.Sequential(nn.Conv2d(3,32,7,2,3),nn.BatchNorm2d(32),nn.ReLU(),nn.MaxPool2d(3,2,1),nn.Conv2d(32,64,3,1,1),nn.ReLU(),nn.Conv2d(64,64,1),nn.AdaptiveAvgPool2d(1),nn.Flatten(),nn.Linear(64,10))
    def forward(s,x): return s.m(x)
torch.manual_seed(0)
def check(name,m,key,spec,ex,ns):
    m=m.eval(); half=m.half(); t=time.time()
    try: c=tvm_tile.compile(half,"nvidia/h100",inputs={key:spec},example_inputs=ex(max(ns)))
    except Exception as e: print(name,"COMPILE",type(e).__name__,str(e)[:600]); return
    print(name,"compiled %.1f s"%(time.time()-t), [l[:90] for l in c.explain().split("\n") if "fell back" in l][:4])
    ref=m.float().cuda()
    bad=[]
    for n in ns:
        a=ex(n); g=[x.cuda() for x in a]
        nan=[torch.full_like(x,float("nan")) if x.is_floating_point() else x for x in [y.cuda() for y in ex(max(ns))]]
        c(*nan)
        got=c(*g); got=c(*g)
        with torch.no_grad(): want=ref(*[x.float() if x.is_floating_point() else x for x in g])
        err=float((got.float()-want).abs().max()/want.abs().max())
        if not err<2e-2: bad.append((n,err))
    print("  wrong:",bad,"of",len(ns))
    m.half()
    return c
ns=[512,511,500,300,257,256,255,130,129,128,127,65,64,63,33,17,16,9,8,3,2,1]
check("mlp",nn.Sequential(nn.Linear(512,1024),nn.GELU(),nn.Linear(1024,512)),"input",(Open(1,512),512),lambda n:(torch.randn(n,512).half(),),ns)
check("causal",Bert(),"t",(1,Open(1,512)),lambda n:(torch.randint(0,1000,(1,n)),),ns)
check("full",Bert(causal=False),"t",(1,Open(1,512)),lambda n:(torch.randint(0,1000,(1,n)),),ns)
check("batch",Bert(causal=False),"t",(Open(1,32),197),lambda n:(torch.randint(0,1000,(n,197)),),[32,31,17,8,5,2,1])
check("conv",Conv(),"x",(Open(1,32),3,64,64),lambda n:(torch.randn(n,3,64,64).half(),),[32,31,17,8,5,2,1])
def timed(f,k=50):
    for _ in range(5): f()
    s,e=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
    r=[]
    for _ in range(k):
        s.record(); f(); e.record(); e.synchronize(); r.append(s.elapsed_time(e))
    r.sort(); return r[len(r)//2]
m=Bert(12,768,12,causal=False).eval().half()
t=time.time(); o=tvm_tile.compile(m,"nvidia/h100",inputs={"t":(1,Open(1,512))},example_inputs=(torch.zeros(1,512,dtype=torch.int64),)); print("bert open %.1f s"%(time.time()-t)); print(o.explain()[:1500])
for n in (512,384,300,128,100,64,17):
    x=torch.randint(0,1000,(1,n)).cuda()
    t=time.time(); s=tvm_tile.compile(m,"nvidia/h100",example_inputs=(x.cpu(),)); t=time.time()-t
    a,b=timed(lambda:o(x)),timed(lambda:s(x))
    print(n,"open %.3f static %.3f ms ratio %.2f (static compile %.1f s)"%(a,b,a/b,t))
