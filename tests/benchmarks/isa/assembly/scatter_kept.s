; vgpr 16, agpr 0, sgpr 48, scratch_bytes 0, lds_bytes 32, waves_per_group 8
; no loop
L0:
	s_load_dwordx2 s[2:3], s[0:1], 0x0
	s_load_dwordx8 s[4:11], s[0:1], 0x8
	s_load_dwordx4 s[12:15], s[0:1], 0x28
	s_waitcnt lgkmcnt(0)
	s_branch L1
L1:
	s_mov_b32 s18, s11
	s_mov_b64 s[12:13], s[2:3]
	v_readfirstlane_b32 s2, v0
	s_ashr_i32 s19, s11, 31
	s_mov_b64 s[0:1], s[6:7]
	s_lshr_b32 s17, s2, 6
	s_lshl_b64 s[2:3], s[18:19], 3
	s_add_u32 s2, s0, s2
	s_addc_u32 s3, s1, s3
	s_load_dwordx2 s[6:7], s[2:3], 0x0
	s_add_i32 s11, s10, 0x7ff
	s_ashr_i32 s14, s11, 31
	s_lshr_b32 s14, s14, 21
	s_add_i32 s11, s11, s14
	s_ashr_i32 s11, s11, 11
	v_and_b32_e32 v6, 63, v0
	s_cmp_ge_i32 s16, s11
	s_waitcnt lgkmcnt(0)
	v_mov_b64_e32 v[4:5], s[6:7]
	s_cbranch_scc1 L5
	s_add_i32 s14, s18, 1
	s_ashr_i32 s15, s14, 31
	s_lshr_b32 s15, s15, 29
	s_add_i32 s15, s14, s15
	s_and_b32 s15, s15, -8
	s_sub_i32 s14, s14, s15
	s_ashr_i32 s15, s14, 31
	s_lshl_b64 s[14:15], s[14:15], 3
	s_add_u32 s14, s0, s14
	s_addc_u32 s15, s1, s15
	s_add_i32 s19, s18, 2
	s_ashr_i32 s20, s19, 31
	s_lshr_b32 s20, s20, 29
	s_add_i32 s20, s19, s20
	s_and_b32 s20, s20, -8
	s_sub_i32 s20, s19, s20
	s_ashr_i32 s21, s20, 31
	s_lshl_b64 s[20:21], s[20:21], 3
	s_add_u32 s20, s0, s20
	s_addc_u32 s21, s1, s21
	s_add_i32 s19, s18, 3
	s_ashr_i32 s22, s19, 31
	s_lshr_b32 s22, s22, 29
	s_add_i32 s22, s19, s22
	s_and_b32 s22, s22, -8
	s_sub_i32 s22, s19, s22
	s_ashr_i32 s23, s22, 31
	s_lshl_b64 s[22:23], s[22:23], 3
	s_add_u32 s22, s0, s22
	s_addc_u32 s23, s1, s23
	s_add_i32 s19, s18, 4
	s_ashr_i32 s24, s19, 31
	s_lshr_b32 s24, s24, 29
	s_add_i32 s24, s19, s24
	s_and_b32 s24, s24, -8
	s_sub_i32 s24, s19, s24
	s_ashr_i32 s25, s24, 31
	s_lshl_b64 s[24:25], s[24:25], 3
	s_add_u32 s24, s0, s24
	s_addc_u32 s25, s1, s25
	s_load_dwordx2 s[26:27], s[14:15], 0x0
	s_load_dwordx2 s[28:29], s[20:21], 0x0
	s_load_dwordx2 s[30:31], s[22:23], 0x0
	s_load_dwordx2 s[34:35], s[24:25], 0x0
	s_add_i32 s14, s18, 5
	s_ashr_i32 s15, s14, 31
	s_lshr_b32 s15, s15, 29
	s_add_i32 s15, s14, s15
	s_and_b32 s15, s15, -8
	s_sub_i32 s14, s14, s15
	s_ashr_i32 s15, s14, 31
	s_lshl_b64 s[14:15], s[14:15], 3
	s_add_u32 s14, s0, s14
	s_addc_u32 s15, s1, s15
	s_add_i32 s19, s18, 6
	s_ashr_i32 s20, s19, 31
	s_lshr_b32 s20, s20, 29
	s_add_i32 s20, s19, s20
	s_and_b32 s20, s20, -8
	s_sub_i32 s20, s19, s20
	s_ashr_i32 s21, s20, 31
	s_lshl_b64 s[20:21], s[20:21], 3
	s_add_u32 s20, s0, s20
	s_addc_u32 s21, s1, s21
	s_add_i32 s19, s18, 7
	s_ashr_i32 s22, s19, 31
	s_lshr_b32 s22, s22, 29
	s_add_i32 s22, s19, s22
	s_and_b32 s22, s22, -8
	s_sub_i32 s22, s19, s22
	s_ashr_i32 s23, s22, 31
	s_lshl_b64 s[22:23], s[22:23], 3
	s_add_u32 s22, s0, s22
	s_addc_u32 s23, s1, s23
	s_lshl_b32 s33, s17, 8
	s_lshl_b32 s19, s18, 8
	s_sub_u32 s6, s4, s6
	s_subb_u32 s7, s5, s7
	s_load_dwordx2 s[36:37], s[14:15], 0x0
	s_load_dwordx2 s[38:39], s[20:21], 0x0
	s_load_dwordx2 s[40:41], s[22:23], 0x0
	s_waitcnt lgkmcnt(0)
	s_add_u32 s20, s6, s26
	s_addc_u32 s21, s7, s27
	s_add_u32 s22, s6, s28
	s_addc_u32 s23, s7, s29
	s_add_u32 s24, s6, s30
	s_addc_u32 s25, s7, s31
	s_add_u32 s26, s6, s34
	s_addc_u32 s27, s7, s35
	s_add_u32 s28, s6, s36
	s_addc_u32 s29, s7, s37
	s_add_u32 s30, s6, s38
	s_addc_u32 s31, s7, s39
	s_add_u32 s34, s6, s40
	s_addc_u32 s35, s7, s41
	s_lshl_b32 s6, s16, 11
	s_add_i32 s6, s6, s33
	v_lshl_or_b32 v1, v6, 2, s6
	s_mov_b32 s15, 0x27000
	s_mov_b32 s14, 0x7ffffffe
	s_and_b32 s13, s13, 0xffff
	s_and_b32 s5, s5, 0xffff
	v_lshlrev_b32_e32 v4, 2, v1
	v_bfrev_b32_e32 v5, 1
	s_mov_b32 s33, s16
	s_branch L3
; loop L3 depth 1
L2:
	s_or_b64 exec, exec, s[6:7]
	s_add_i32 s33, s33, 8
	v_add_u32_e32 v1, 0x4000, v1
	s_cmp_lt_i32 s33, s11
	v_add_u32_e32 v4, 0x10000, v4
	s_cbranch_scc0 L4
L3:
	v_cmp_gt_i32_e32 vcc, s10, v1
	s_mov_b32 s6, s14
	s_mov_b32 s7, s15
	v_cndmask_b32_e32 v2, v5, v4, vcc
	buffer_load_dwordx4 v[8:11], v2, s[12:15], 0 offen
	v_ashrrev_i32_e32 v2, 31, v1
	v_add_u32_sdwa v2, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3
	v_ashrrev_i32_e32 v2, 8, v2
	v_lshlrev_b32_e32 v3, 11, v2
	v_mul_i32_i24_e32 v2, 0x100, v2
	v_sub_u32_e32 v2, v1, v2
	v_add3_u32 v2, v2, s19, v3
	v_lshlrev_b32_e32 v3, 2, v2
	v_cndmask_b32_e32 v3, v5, v3, vcc
	s_waitcnt vmcnt(0)
	buffer_store_dwordx4 v[8:11], v3, s[4:7], 0 offen
	s_and_saveexec_b64 s[6:7], vcc
	s_cbranch_execz L2
	v_ashrrev_i32_e32 v3, 31, v2
	v_lshlrev_b64 v[2:3], 2, v[2:3]
	v_lshl_add_u64 v[12:13], s[20:21], 0, v[2:3]
	global_store_dwordx4 v[12:13], v[8:11], off
	v_lshl_add_u64 v[12:13], s[22:23], 0, v[2:3]
	global_store_dwordx4 v[12:13], v[8:11], off
	v_lshl_add_u64 v[12:13], s[24:25], 0, v[2:3]
	global_store_dwordx4 v[12:13], v[8:11], off
	v_lshl_add_u64 v[12:13], s[26:27], 0, v[2:3]
	global_store_dwordx4 v[12:13], v[8:11], off
	v_lshl_add_u64 v[12:13], s[28:29], 0, v[2:3]
	global_store_dwordx4 v[12:13], v[8:11], off
	v_lshl_add_u64 v[12:13], s[30:31], 0, v[2:3]
	v_lshl_add_u64 v[2:3], s[34:35], 0, v[2:3]
	global_store_dwordx4 v[12:13], v[8:11], off
	global_store_dwordx4 v[2:3], v[8:11], off
	s_branch L2
; no loop
L4:
	v_mov_b32_e32 v1, 0
	global_load_dwordx2 v[4:5], v1, s[2:3]
L5:
	s_lshl3_add_u32 s2, s18, s16
	s_ashr_i32 s3, s2, 31
	s_lshl_b64 s[2:3], s[2:3], 2
	s_add_u32 s6, s8, s2
	v_and_b32_e32 v7, 7, v0
	s_addc_u32 s7, s9, s3
	v_mov_b32_e32 v3, 0
	s_and_b32 s1, s1, 0xffff
	s_mov_b32 s3, 0x27000
	s_mov_b32 s2, 0x7ffffffe
	v_lshlrev_b32_e32 v8, 3, v7
	global_load_dword v2, v3, s[6:7]
	buffer_load_dwordx2 v[10:11], v8, s[0:3], 0 offen
	v_and_or_b32 v0, v0, 56, s17
	v_cmp_ne_u32_e64 s[0:1], s18, v7
	v_cmp_eq_u32_e64 s[2:3], 0, v0
	s_and_b64 s[4:5], s[0:1], s[2:3]
	v_mov_b32_e32 v1, s16
	v_mov_b32_e32 v9, 0
	v_mov_b32_e32 v12, 0
	v_cndmask_b32_e64 v14, 0, 1, s[4:5]
	s_waitcnt vmcnt(0)
	v_mov_b32 v0, v1
	v_mov_b32_e32 v15, s7
	s_waitcnt vmcnt(2)
	v_sub_co_u32_e32 v0, vcc, s6, v4
	v_mov_b32_dpp v9, v14 row_shr:1 row_mask:0xf bank_mask:0xf
	v_mov_b32_dpp v12, v14 row_shr:2 row_mask:0xf bank_mask:0xf
	v_subb_co_u32_e32 v1, vcc, v15, v5, vcc
	v_addc_co_u32_e64 v4, vcc, v12, v9, s[4:5]
	v_bfrev_b32_e32 v13, 0.5
	s_nop 0
	v_add_u32_dpp v4, v14, v4 row_shr:3 row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_barrier
	s_nop 0
	v_add_u32_dpp v4, v4, v4 row_shr:4 row_mask:0xf bank_mask:0xe
	s_waitcnt vmcnt(0)
	v_lshl_add_u64 v[0:1], v[0:1], 0, v[10:11]
	v_add_u32_dpp v4, v4, v4 row_shr:8 row_mask:0xf bank_mask:0xc
	s_nop 1
	v_add_u32_dpp v4, v4, v4 row_bcast:15 row_mask:0xa bank_mask:0xf
	s_nop 1
	v_add_u32_dpp v4, v4, v4 row_bcast:31 row_mask:0xc bank_mask:0xf
	v_cndmask_b32_e64 v4, 0, v4, s[4:5]
	v_lshl_add_u32 v5, v4, 2, -4
	v_cmp_ne_u32_e32 vcc, 0, v4
	v_add_u32_e32 v4, 1, v2
	s_nop 0
	v_cndmask_b32_e32 v9, v13, v5, vcc
	ds_permute_b32 v5, v9, v4
	ds_permute_b32 v0, v9, v0
	ds_permute_b32 v1, v9, v1
	v_cmp_ne_u32_e32 vcc, 0, v14
	s_bcnt1_i32_b64 s10, vcc
	v_cmp_gt_u32_e32 vcc, s10, v6
	s_and_saveexec_b64 s[10:11], vcc
	s_cbranch_execz L10
	v_mov_b32_e32 v2, 0
	s_waitcnt lgkmcnt(0)
	v_mov_b32_dpp v3, v1 wave_shl:1 row_mask:0xf bank_mask:0xf
	v_lshl_add_u64 v[10:11], v[0:1], 0, 4
	v_mov_b32_dpp v2, v0 wave_shl:1 row_mask:0xf bank_mask:0xf
	v_cmp_eq_u64_e32 vcc, v[10:11], v[2:3]
	s_lshr_b64 s[12:13], vcc, 1
	s_and_b32 s13, s13, 0x55555555
	s_and_b32 s12, s12, 0x55555555
	s_sub_u32 s12, vcc_lo, s12
	s_mov_b32 s14, 0x33333333
	s_subb_u32 s13, vcc_hi, s13
	s_mov_b32 s15, s14
	s_and_b64 s[18:19], s[12:13], s[14:15]
	s_lshr_b64 s[12:13], s[12:13], 2
	s_and_b64 s[12:13], s[12:13], s[14:15]
	s_add_u32 s12, s12, s18
	s_addc_u32 s13, s13, s19
	s_lshr_b64 s[14:15], s[12:13], 4
	s_add_u32 s12, s14, s12
	s_addc_u32 s13, s15, s13
	s_and_b32 s12, s12, 0xf0f0f0f
	s_and_b32 s13, s13, 0xf0f0f0f
	s_mul_i32 s14, s12, 0x1010101
	s_mul_hi_u32 s12, s12, 0x1010101
	s_add_i32 s12, s12, s14
	s_mul_i32 s13, s13, 0x1010101
	s_add_i32 s12, s12, s13
	s_cmp_gt_u32 s12, 0x1fffffff
	s_cbranch_scc1 L8
	s_mov_b32 s14, 0
	s_mov_b64 s[12:13], 0
; loop L6 depth 1
L6:
	v_readfirstlane_b32 s18, v0
	v_readfirstlane_b32 s19, v1
	v_mov_b32_e32 v9, s14
	s_nop 0
	v_cmp_eq_u64_e64 s[18:19], s[18:19], v[0:1]
	s_bcnt1_i32_b64 s15, s[18:19]
	s_add_i32 s14, s14, s15
	v_mov_b64_e32 v[2:3], s[18:19]
	v_mov_b32_e32 v10, s15
	s_or_b64 s[12:13], s[18:19], s[12:13]
	s_andn2_b64 exec, exec, s[12:13]
	s_cbranch_execnz L6
; no loop
	s_or_b64 exec, exec, s[12:13]
	v_mbcnt_lo_u32_b32 v2, v2, 0
	v_mbcnt_hi_u32_b32 v2, v3, v2
	v_sub_u32_e32 v3, v10, v2
	v_cmp_eq_u32_e32 vcc, 0, v2
	v_add_lshl_u32 v9, v2, v9, 2
	v_lshlrev_b32_e32 v3, 8, v3
	v_cndmask_b32_e64 v2, 0, 1, vcc
	v_or3_b32 v2, v3, v2, v9
	ds_permute_b32 v2, v9, v2
	ds_permute_b32 v0, v9, v0
	ds_permute_b32 v1, v9, v1
	ds_permute_b32 v5, v9, v5
	v_mov_b32_e32 v3, 1
	s_waitcnt lgkmcnt(3)
	v_cmp_ne_u32_sdwa vcc, v2, v3 src0_sel:BYTE_1 src1_sel:DWORD
	s_cbranch_vccz L7
	s_waitcnt lgkmcnt(0)
	ds_bpermute_b32 v9, v2, v5 offset:128
	v_mov_b32_e32 v10, 32
	v_cmp_gt_u32_sdwa vcc, v2, v10 src0_sel:BYTE_1 src1_sel:DWORD
	v_mov_b32_e32 v10, 16
	s_waitcnt lgkmcnt(0)
	v_cndmask_b32_e32 v9, v5, v9, vcc
	ds_bpermute_b32 v9, v2, v9 offset:64
	v_cmp_gt_u32_sdwa vcc, v2, v10 src0_sel:BYTE_1 src1_sel:DWORD
	v_mov_b32_e32 v10, 8
	s_waitcnt lgkmcnt(0)
	v_cndmask_b32_e32 v9, v5, v9, vcc
	ds_bpermute_b32 v9, v2, v9 offset:32
	v_cmp_gt_u32_sdwa vcc, v2, v10 src0_sel:BYTE_1 src1_sel:DWORD
	v_mov_b32_e32 v10, 4
	s_waitcnt lgkmcnt(0)
	v_cndmask_b32_e32 v9, v5, v9, vcc
	ds_bpermute_b32 v9, v2, v9 offset:16
	v_cmp_gt_u32_sdwa vcc, v2, v10 src0_sel:BYTE_1 src1_sel:DWORD
	v_mov_b32_e32 v10, 2
	s_waitcnt lgkmcnt(0)
	v_cndmask_b32_e32 v9, v5, v9, vcc
	ds_bpermute_b32 v9, v2, v9 offset:8
	v_cmp_gt_u32_sdwa vcc, v2, v10 src0_sel:BYTE_1 src1_sel:DWORD
	s_waitcnt lgkmcnt(0)
	s_nop 0
	v_cndmask_b32_e32 v9, v5, v9, vcc
	ds_bpermute_b32 v9, v2, v9 offset:4
	v_cmp_gt_u32_sdwa vcc, v2, v3 src0_sel:BYTE_1 src1_sel:DWORD
	s_waitcnt lgkmcnt(0)
	s_nop 0
	v_cndmask_b32_e32 v5, v5, v9, vcc
L7:
	v_and_b32_e32 v2, 1, v2
	v_cmp_eq_u32_e64 s[12:13], 1, v2
	s_and_b64 exec, exec, s[12:13]
	s_cbranch_execnz L9
	s_branch L10
L8:
	s_mov_b64 s[12:13], -1
	s_and_b64 exec, exec, s[12:13]
	s_cbranch_execz L10
L9:
	buffer_wbl2 sc0 sc1
	s_waitcnt vmcnt(0) lgkmcnt(0)
	global_atomic_swap v[0:1], v5, off sc1
L10:
	s_or_b64 exec, exec, s[10:11]
	s_waitcnt lgkmcnt(1)
	v_add_u32_e32 v0, s16, v8
	v_lshlrev_b32_e32 v2, 2, v7
	s_waitcnt lgkmcnt(0)
	v_ashrrev_i32_e32 v1, 31, v0
	v_lshl_add_u64 v[0:1], v[0:1], 2, s[8:9]
	s_mov_b64 s[8:9], 0
	v_add_u32_e32 v2, 0, v2
	s_branch L12
; loop L12 depth 1
L11:
	s_or_b64 exec, exec, s[10:11]
	s_waitcnt lgkmcnt(0)
	s_barrier
	ds_read_b32 v3, v2
	s_waitcnt lgkmcnt(0)
	v_sub_u32_e32 v3, v3, v4
	v_cmp_gt_i32_e32 vcc, 0, v3
	s_and_b64 s[10:11], s[0:1], vcc
	v_cndmask_b32_e64 v3, 0, 1, s[10:11]
	s_nop 1
	v_mov_b32_dpp v5, v3 row_half_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_u32_dpp v3, v5, v3 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_u32_dpp v3, v3, v3 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf bound_ctrl:1
	s_nop 1
	v_add_u32_dpp v3, v3, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
	v_cmp_gt_i32_e32 vcc, 1, v3
	s_or_b64 s[8:9], vcc, s[8:9]
	s_andn2_b64 exec, exec, s[8:9]
	s_cbranch_execz L14
L12:
	s_barrier
	s_and_saveexec_b64 s[10:11], s[4:5]
	s_cbranch_execz L13
	global_load_dword v3, v[0:1], off sc0 sc1
	s_waitcnt vmcnt(0)
	buffer_inv sc0 sc1
L13:
	s_or_b64 exec, exec, s[10:11]
	s_and_saveexec_b64 s[10:11], s[2:3]
	s_cbranch_execz L11
	ds_write_b32 v2, v3
	s_branch L11
; no loop
L14:
	s_or_b64 exec, exec, s[8:9]
	v_or_b32_e32 v0, s17, v6
	v_cmp_eq_u32_e32 vcc, 0, v0
	s_and_saveexec_b64 s[0:1], vcc
	s_cbranch_execz L15
	v_mov_b32_e32 v0, 0
	global_store_dword v0, v4, s[6:7]
L15:
	s_endpgm
L16:
