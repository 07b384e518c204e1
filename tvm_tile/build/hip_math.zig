//! The mathematics that kernels for AMD's GPUs are linked with: C's functions, under C's names.
//!
//! They are compiled from Zig's own libraries; `hip_math.py` adds those that Zig has in C (musl's).
//! AMD's code generator has none of float64's; of float32's it has exp, exp2, log, log2, log10 and
//! sqrt, while its sine is the hardware's, which is wrong for large arguments.
//!
//! This file takes the place of Zig's own `compiler_rt.zig`, which exports all of the folder
//! `compiler_rt` and does not compile for these GPUs.

const std = @import("std");
const math = std.math;

/// Nothing here can panic.
pub const panic = std.debug.no_panic;

const e = @import("compiler_rt/exp.zig");
const e2 = @import("compiler_rt/exp2.zig");
const ln = @import("compiler_rt/log.zig");
const lb = @import("compiler_rt/log2.zig");
const lg = @import("compiler_rt/log10.zig");
const sine = @import("compiler_rt/sin.zig");
const cosine = @import("compiler_rt/cos.zig");
const tangent = @import("compiler_rt/tan.zig");

export fn exp(x: f64) f64 {
    return e.exp_f64(x);
}
export fn exp2(x: f64) f64 {
    return e2.exp2_f64(x);
}
export fn log(x: f64) f64 {
    return ln.log_f64(x);
}
export fn log2(x: f64) f64 {
    return lb.log2_f64(x);
}
export fn log10(x: f64) f64 {
    return lg.log10_f64(x);
}

export fn sinf(x: f32) f32 {
    return sine.sin_f32(x);
}
export fn sin(x: f64) f64 {
    return sine.sin_f64(x);
}
export fn cosf(x: f32) f32 {
    return cosine.cos_f32(x);
}
export fn cos(x: f64) f64 {
    return cosine.cos_f64(x);
}
export fn tanf(x: f32) f32 {
    return tangent.tan_f32(x);
}
export fn tan(x: f64) f64 {
    return tangent.tan_f64(x);
}

export fn acosf(x: f32) f32 {
    return math.acos(x);
}
export fn acos(x: f64) f64 {
    return math.acos(x);
}
export fn asin(x: f64) f64 {
    return math.asin(x);
}
export fn atanf(x: f32) f32 {
    return math.atan(x);
}
export fn atan(x: f64) f64 {
    return math.atan(x);
}

export fn acoshf(x: f32) f32 {
    return math.acosh(x);
}
export fn coshf(x: f32) f32 {
    return math.cosh(x);
}
export fn tanhf(x: f32) f32 {
    return math.tanh(x);
}
export fn tanh(x: f64) f64 {
    return math.tanh(x);
}
export fn log1pf(x: f32) f32 {
    return math.log1p(x);
}
export fn log1p(x: f64) f64 {
    return math.log1p(x);
}
export fn hypotf(x: f32, y: f32) f32 {
    return math.hypot(x, y);
}
export fn hypot(x: f64, y: f64) f64 {
    return math.hypot(x, y);
}

// Zig's own calls the compiler's exponential of float64. Halves keep the square from overflowing
// before the cosine does.
export fn cosh(x: f64) f64 {
    const half = exp(@abs(x) / 2);
    return if (@abs(x) < 700) (exp(@abs(x)) + exp(-@abs(x))) / 2 else half / 2 * half;
}

extern fn pow(f64, f64) f64;
export fn exp10(x: f64) f64 {
    return pow(10, x);
}
export fn exp10f(x: f32) f32 {
    return @floatCast(e2.exp2_f64(@as(f64, x) * 3.321928094887362));
}

// What musl's files call.
export fn expf(x: f32) f32 {
    return e.exp_f32(x);
}
export fn logf(x: f32) f32 {
    return ln.log_f32(x);
}
export fn sqrtf(x: f32) f32 {
    return @sqrt(x);
}
export fn sqrt(x: f64) f64 {
    return @sqrt(x);
}

// What the files in the folder compiler_rt take of the one that this takes the place of.
pub const want_float_exceptions = false;
pub const want_ppc_abi = false;
pub const have_c_longdouble = false;
pub const @"f16" = PassedAs(f16, f16);
pub const @"f32" = PassedAs(f32, f32);
pub const @"f64" = PassedAs(f64, f64);
// The GPUs cannot pass these, and nobody does.
pub const @"f80" = PassedAs(f80, f64);
pub const @"f128" = PassedAs(f128, f64);

/// Exports nothing.
pub inline fn symbol(comptime _: *const anyopaque, comptime _: []const u8) void {}

fn PassedAs(comptime Float: type, comptime Passed: type) type {
    return struct {
        pub const Abi = Passed;
        pub inline fn toAbi(x: Float) Abi {
            return @floatCast(x);
        }
        pub inline fn fromAbi(x: Abi) Float {
            return x;
        }
    };
}
